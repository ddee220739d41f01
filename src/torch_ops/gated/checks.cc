// Checks of a call of the gated recurrences, on any device.
#include <vector>

#include "torch_ops/common/wants.h"
#include "torch_ops/gated/call.h"

namespace tarn::ops {
namespace {

using Shape = std::vector<c10::SymInt>;

void CheckGates(const GatedCall& in, const Wants& want,
                const c10::SymInt& heads) {
  const at::Tensor& gates = *in.gates;
  want.Device("gates", gates);
  want.Floating("gates", gates);
  Shape token = {in.queries.sym_size(0), in.queries.sym_size(1), heads};
  if (gates.dim() == 1) return want.Sizes("gates", gates, {heads});
  if (gates.dim() == 4) token.push_back(in.queries.sym_size(3));
  if (gates.dim() == 3 || gates.dim() == 4) {
    return want.Sizes("gates", gates, token);
  }
  throw ShapeError(want.Argument("gates"),
                   "[heads], [batch, seq_len, heads] or one more axis of d_key",
                   SizesText(gates.sym_sizes()));
}

}  // namespace

void CheckGated(const GatedCall& in) {
  const Wants want(in.name(), in.queries);
  const auto axes = [&](const char* name, const at::Tensor& x) {
    if (x.dim() == 4) return;
    throw ShapeError(want.Argument(name),
                     "4 axes [batch, seq_len, heads, width]",
                     SizesText(x.sym_sizes()));
  };
  want.Floating("queries", in.queries);
  for (const auto& [name, x] :
       {std::pair{"queries", &in.queries}, std::pair{"keys", &in.keys},
        std::pair{"values", &in.values}}) {
    axes(name, *x);
    want.DType(name, *x, in.queries.scalar_type());
    want.Device(name, *x);
  }
  want.Sizes("keys", in.keys, in.queries.sym_sizes().vec());
  const c10::SymInt batch = in.queries.sym_size(0),
                    tokens = in.queries.sym_size(1);
  const c10::SymInt heads = in.values.sym_size(2),
                    d_key = in.queries.sym_size(3);
  want.Sizes("values", in.values,
             {batch, tokens, heads, in.values.sym_size(3)});
  const c10::SymInt query_heads = in.queries.sym_size(2);
  if (query_heads < 1 || d_key < 1 || in.values.sym_size(3) < 1 ||
      heads % query_heads != 0 || heads < 1) {
    throw ShapeError(want.Argument("values"),
                     StrCat("heads in a multiple of the ", query_heads,
                            " of queries, widths of 1 or more"),
                     SizesText(in.values.sym_sizes()));
  }
  if (in.gates.has_value()) CheckGates(in, want, heads);
  if (in.delta()) {
    want.Device("betas", *in.betas);
    want.Floating("betas", *in.betas);
    want.Sizes("betas", *in.betas, {batch, tokens, heads});
  } else if (in.bonus.has_value()) {
    want.Device("bonus", *in.bonus);
    want.Floating("bonus", *in.bonus);
    want.Sizes("bonus", *in.bonus, {heads, d_key});
  }
  if (in.dplr()) {
    want.Sizes("values", in.values,
               {batch, tokens, query_heads, in.values.sym_size(3)});
    for (const auto& [name, x] :
         {std::pair{"reads", &*in.reads}, std::pair{"writes", &*in.writes}}) {
      want.Device(name, *x);
      want.DType(name, *x, in.queries.scalar_type());
      want.Sizes(name, *x, in.queries.sym_sizes().vec());
    }
  }
  const c10::SymInt states = want.Sequences(in.lengths, in.cu_seqlens, batch);
  want.State(in.initial_state, in.queries,
             {states, heads, d_key, in.values.sym_size(3)});
}

}  // namespace tarn::ops
