// Checks of a call of the gated recurrences, on any device.
#include <vector>

#include "torch_ops/common/tensors.h"
#include "torch_ops/gated/call.h"

namespace tarn::ops {
namespace {

using Shape = std::vector<c10::SymInt>;

std::string Text(c10::SymIntArrayRef sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += StrCat(i == 0 ? "" : ", ", sizes[i]);
  }
  return text + "]";
}

class Wants {
 public:
  explicit Wants(const GatedCall& call) : call_(call) {}

  [[nodiscard]] std::string Argument(const char* name) const {
    return StrCat(call_.name(), ": ", name);
  }
  void Sizes(const char* name, const at::Tensor& x, const Shape& wanted) const {
    if (x.sym_sizes() == c10::SymIntArrayRef(wanted)) return;
    throw ShapeError(Argument(name), Text(wanted), Text(x.sym_sizes()));
  }
  void DType(const char* name, const at::Tensor& x,
             at::ScalarType wanted) const {
    if (x.scalar_type() == wanted) return;
    throw DTypeError(Argument(name), c10::toString(wanted),
                     c10::toString(x.scalar_type()));
  }
  void Floating(const char* name, const at::Tensor& x) const {
    const at::ScalarType type = x.scalar_type();
    if (type == at::kFloat || type == at::kDouble || type == at::kBFloat16 ||
        type == at::kHalf) {
      return;
    }
    throw DTypeError(Argument(name), "float32, float64, bfloat16 or float16",
                     c10::toString(type));
  }
  void Device(const char* name, const at::Tensor& x) const {
    if (x.device() == call_.queries.device()) return;
    throw DeviceError(Argument(name), call_.queries.device().str(),
                      x.device().str());
  }

 private:
  const GatedCall& call_;
};

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
                   Text(gates.sym_sizes()));
}

void CheckLengthsOf(const char* name, const at::Tensor& x, const Wants& want) {
  want.Device(name, x);
  if (x.scalar_type() != at::kInt && x.scalar_type() != at::kLong) {
    throw DTypeError(want.Argument(name), "Int or Long",
                     c10::toString(x.scalar_type()));
  }
}

}  // namespace

void CheckGated(const GatedCall& in) {
  const Wants want(in);
  const auto axes = [&](const char* name, const at::Tensor& x) {
    if (x.dim() == 4) return;
    throw ShapeError(want.Argument(name),
                     "4 axes [batch, seq_len, heads, width]",
                     Text(x.sym_sizes()));
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
                     Text(in.values.sym_sizes()));
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
  c10::SymInt states = batch;
  if (in.lengths.has_value()) {
    CheckLengthsOf("lengths", *in.lengths, want);
    want.Sizes("lengths", *in.lengths, {batch});
  }
  if (in.cu_seqlens.has_value()) {
    CheckLengthsOf("cu_seqlens", *in.cu_seqlens, want);
    if (in.cu_seqlens->dim() != 1 || in.cu_seqlens->sym_size(0) < 1) {
      throw ShapeError(want.Argument("cu_seqlens"), "[n] with n >= 1",
                       Text(in.cu_seqlens->sym_sizes()));
    }
    if (batch != 1 || in.lengths.has_value()) {
      throw ArgumentError(want.Argument("cu_seqlens"),
                          "a batch of 1 and no lengths",
                          in.lengths.has_value() ? "lengths" : StrCat(batch));
    }
    states = in.cu_seqlens->sym_size(0) - 1;
  }
  if (in.initial_state.has_value()) {
    want.Device("initial_state", *in.initial_state);
    want.DType("initial_state", *in.initial_state, ComputeType(in.queries));
    want.Sizes("initial_state", *in.initial_state,
               {states, heads, d_key, in.values.sym_size(3)});
  }
}

}  // namespace tarn::ops
