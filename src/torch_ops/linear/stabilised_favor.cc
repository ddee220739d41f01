// Favor without overflow or underflow. With exponents a_ic of query i and e_jc
// of key j, the weight of key j is sum_c exp(a_ic + e_jc). The state holds, for
// each feature, the largest key exponent so far, m_c, and
//   S_c = sum_j exp(e_jc - m_c) v_j,  z_c = sum_j exp(e_jc - m_c),
// rescaled by exp(m_old - m_new) when m grows. A row is divided by
// exp(M_i), M_i = max over c and j in A(i) of a_ic + e_jc, which cancels: its
// denominator is between 1 and C |A(i)|, whatever the inputs. One maximum for
// all features would not do: a query's largest feature and a key's may be
// hundreds apart in the exponent. Maxima are constants of the gradient, as the
// output does not depend on them.
//
// Causal in blocks: what came before the block through S and z, keys inside it
// pair by pair, so that no row sees a maximum of later keys.
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "torch_ops/common/tensors.h"
#include "torch_ops/linear/mapped_attention.h"

namespace tarn::ops {
namespace {

// Tokens of a block: B H kFavorBlock^2 C exponentials at a time.
constexpr int64_t kFavorBlock = 16;

int64_t Size(const at::Tensor& x, int64_t axis) {
  return x.sym_size(axis).guard_int(__FILE__, __LINE__);
}

// Finite where nothing was seen yet: exp(-inf - 0) is 0, exp(-inf + inf) not.
at::Tensor OrZero(const at::Tensor& maximum) {
  return at::where(maximum == -kInfinity, at::zeros({}, maximum.options()),
                   maximum);
}

class FavorBlocks {
 public:
  FavorBlocks(const Operands& in, const MappedAttentionOptions& options,
              const at::Tensor& extra)
      : batch_(Size(in.queries, 0)),
        heads_(Size(in.queries, 2)),
        group_(Size(in.values, 2) / heads_),
        d_value_(Size(in.values, 3)) {
    const FeatureMapOptions& features = options.features;
    queries_ = FavorExponents(features, in.queries, /*with_norm=*/false)
                   .transpose(1, 2);  // [B, H, T, C]
    keys_ = FavorExponents(features, in.keys, /*with_norm=*/true);
    at::Tensor values = in.values;
    const at::Tensor kept = KeptKeys(in);
    if (kept.defined()) {
      const at::Tensor rows = kept.unsqueeze(-1).unsqueeze(-1);
      keys_ = at::where(rows, keys_, at::full({}, -kInfinity, keys_.options()));
      values = at::where(rows, values, at::zeros({}, values.options()));
    }
    keys_ = keys_.transpose(1, 2);  // [B, H, S, C]
    values_ = ByHead(values);       // [B, H, S, G (V + 1)]
    width_ = Size(keys_, 3);
    StartFrom(in, extra);
  }

  int64_t queries() const { return Size(queries_, 2); }
  int64_t keys() const { return Size(keys_, 2); }

  // Adds keys [begin, end) to the state.
  void Absorb(int64_t begin, int64_t end) {
    if (begin >= end) return;
    const at::Tensor e = keys_.narrow(2, begin, end - begin);
    const at::Tensor largest = at::maximum(largest_, at::amax(e.detach(), {2}));
    const at::Tensor base = OrZero(largest);  // [B, H, C]
    state_ = state_ * (largest_ - base).exp().unsqueeze(-1) +
             at::matmul((e - base.unsqueeze(2)).exp().transpose(2, 3),
                        values_.narrow(2, begin, end - begin));
    largest_ = largest;
  }

  // Outputs [B, H, n, G (V + 1)] of queries [row, row + n), before division:
  // the state's keys, and those of [begin, end) with j <= i + offset.
  at::Tensor Read(int64_t row, int64_t n, int64_t begin, int64_t end,
                  int64_t offset) const {
    const at::Tensor a = queries_.narrow(2, row, n);
    const at::Tensor past = a + largest_.unsqueeze(2);
    at::Tensor largest = at::amax(past.detach(), {3});  // M_i [B, H, n]
    at::Tensor pairs;                                   // [B, H, n, keys, C]
    if (begin < end) {
      const auto range = [&](int64_t from, int64_t to) {
        return at::arange(from, to, a.options().dtype(at::kLong));
      };
      const at::Tensor allowed = range(begin, end).unsqueeze(0) <=
                                 range(row, row + n).unsqueeze(1) + offset;
      pairs = at::where(
          allowed.unsqueeze(-1),
          a.unsqueeze(3) + keys_.narrow(2, begin, end - begin).unsqueeze(2),
          at::full({}, -kInfinity, a.options()));
      largest = at::maximum(largest, at::amax(pairs.detach(), {3, 4}));
    }
    const at::Tensor base = OrZero(largest).unsqueeze(-1);
    at::Tensor rows = at::matmul((past - base).exp(), state_);
    if (pairs.defined()) {
      rows = rows + at::matmul((pairs - base.unsqueeze(-1)).exp().sum(-1),
                               values_.narrow(2, begin, end - begin));
    }
    return rows;
  }

  // Numerators over denominators, [B, T, HV, V]; 0 where nothing was read.
  at::Tensor Divide(const std::vector<at::Tensor>& blocks) const {
    const at::Tensor rows =
        blocks.empty()
            ? values_.new_zeros({batch_, heads_, 0, group_ * (d_value_ + 1)})
            : at::cat(blocks, 2);
    const at::Tensor split =  // [B, T, H G, V + 1]
        rows.unflatten(3, {group_, d_value_ + 1})
            .permute({0, 2, 1, 3, 4})
            .flatten(2, 3);
    const at::Tensor numerators = split.narrow(3, 0, d_value_);
    const at::Tensor denominators = split.narrow(3, d_value_, 1);
    const at::Tensor empty = denominators.detach() == 0;
    return at::where(empty, at::zeros({}, rows.options()),
                     numerators / at::where(empty, at::ones({}, rows.options()),
                                            denominators));
  }

  LinearState State() const {
    const at::Tensor split =  // [B, H G, C, V + 1]
        state_.unflatten(3, {group_, d_value_ + 1})
            .permute({0, 1, 3, 2, 4})
            .flatten(1, 2);
    return {split.narrow(3, 0, d_value_).contiguous(),
            split.narrow(3, d_value_, 1).squeeze(3).contiguous(),
            OrZero(largest_)};
  }

 private:
  // [B, S, HV, V] with a column of ones, value heads of a head side by side:
  // they share its weights.
  at::Tensor ByHead(const at::Tensor& values) const {
    std::vector<c10::SymInt> column = values.sym_sizes().vec();
    column.back() = 1;
    return at::cat({values, at::ones_symint(column, values.options())}, 3)
        .unflatten(2, {heads_, group_})
        .flatten(3, 4)
        .transpose(1, 2);
  }

  void StartFrom(const Operands& in, const at::Tensor& extra) {
    if (!in.initial_S.has_value()) {
      state_ =
          values_.new_zeros({batch_, heads_, width_, group_ * (d_value_ + 1)});
      largest_ =
          at::full({batch_, heads_, width_}, -kInfinity, values_.options());
      return;
    }
    state_ = at::cat({*in.initial_S, in.initial_z->unsqueeze(-1)}, 3)
                 .unflatten(1, {heads_, group_})
                 .permute({0, 1, 3, 2, 4})
                 .flatten(3, 4);
    // The key of a feature's maximum adds exp(0) to z: 0 means no key yet.
    const at::Tensor seen =
        in.initial_z->detach().unflatten(1, {heads_, group_}).amax({2}) > 0;
    largest_ = at::where(seen, extra.detach(),
                         at::full({}, -kInfinity, extra.options()));
  }

  int64_t batch_, heads_, group_, d_value_, width_ = 0;
  at::Tensor queries_, keys_, values_;
  at::Tensor state_;    // [B, H, C, G (V + 1)], relative to largest_
  at::Tensor largest_;  // [B, H, C], -inf where there was no key
};

void CheckShapes(const Operands& in, int64_t width) {
  const auto want = [](const char* name, const at::Tensor& x,
                       const std::vector<c10::SymInt>& shape) {
    if (x.sym_sizes() == c10::SymIntArrayRef(shape)) return;
    throw ShapeError(StrCat("mapped_linear_attention: ", name),
                     StrCat(c10::SymIntArrayRef(shape)), StrCat(x.sym_sizes()));
  };
  const c10::SymInt batch = in.queries.sym_size(0);
  const c10::SymInt heads = in.queries.sym_size(2);
  const c10::SymInt keys = in.keys.sym_size(1);
  const c10::SymInt value_heads = in.values.sym_size(2);
  want("keys", in.keys, {batch, keys, heads, in.queries.sym_size(3)});
  want("values", in.values, {batch, keys, value_heads, in.values.sym_size(3)});
  if (heads < 1 || value_heads < 1 || value_heads % heads != 0) {
    throw ShapeError("mapped_linear_attention: values",
                     StrCat("heads a multiple of ", heads),
                     StrCat(in.values.sym_sizes()));
  }
  if (!in.initial_S.has_value()) return;
  const c10::SymInt states =
      in.cu_seqlens.has_value() ? in.cu_seqlens->sym_size(0) - 1 : batch;
  want("initial_S", *in.initial_S,
       {states, value_heads, width, in.values.sym_size(3)});
  want("initial_z", *in.initial_z, {states, value_heads, width});
}

MappedAttentionResult OneSequence(const Operands& in,
                                  const MappedAttentionOptions& options,
                                  const at::Tensor& extra) {
  FavorBlocks sums(in, options, extra);
  const int64_t queries = sums.queries(), keys = sums.keys();
  std::vector<at::Tensor> blocks;
  if (!options.causal) {
    sums.Absorb(0, keys);
    if (queries > 0) blocks.push_back(sums.Read(0, queries, 0, 0, 0));
    return {sums.Divide(blocks), sums.State(), {}};
  }
  const int64_t offset = std::clamp(
      options.causal_offset.guard_int(__FILE__, __LINE__), -queries, keys);
  const auto position = [&](int64_t row) {
    return std::clamp<int64_t>(row + offset, 0, keys);
  };
  sums.Absorb(0, position(0));
  for (int64_t row = 0; row < queries; row += kFavorBlock) {
    const int64_t n = std::min(kFavorBlock, queries - row);
    const int64_t begin = position(row), end = position(row + n);
    blocks.push_back(sums.Read(row, n, begin, end, offset));
    sums.Absorb(begin, end);
  }
  sums.Absorb(position(queries), keys);
  return {sums.Divide(blocks), sums.State(), {}};
}

void CheckBounds(const int64_t* at, int64_t count, const Operands& in) {
  const int64_t tokens = Size(in.keys, 1);
  bool rising = count >= 0 && at[0] == 0 && at[count] == tokens;
  for (int64_t n = 0; rising && n < count; ++n) rising = at[n] <= at[n + 1];
  if (rising && Size(in.queries, 0) == 1 && Size(in.queries, 1) == tokens) {
    return;
  }
  throw ArgumentError("mapped_linear_attention: cu_seqlens",
                      StrCat("0 rising to ", tokens, ", with B = 1 and T = S"),
                      StrCat(*in.cu_seqlens));
}

// Sequences packed along time, one after the other.
MappedAttentionResult Packed(const Operands& in,
                             const MappedAttentionOptions& options,
                             const at::Tensor& extra) {
  if (!HoldsData(*in.cu_seqlens)) {
    throw ArgumentError("mapped_linear_attention: cu_seqlens (with stabilise)",
                        "none while a compiler traces", "a tensor");
  }
  const at::Tensor bounds = in.cu_seqlens->to(at::kLong).contiguous();
  const int64_t* at = bounds.const_data_ptr<int64_t>();
  const int64_t count = Size(bounds, 0) - 1;
  CheckBounds(at, count, in);
  // There must be something to join where there is no sequence.
  std::vector<at::Tensor> outs = {in.values.slice(1, 0, 0)}, S, z, extras;
  for (int64_t n = 0; n < count; ++n) {
    const auto part = [&](const at::Tensor& x) {
      return x.narrow(1, at[n], at[n + 1] - at[n]);
    };
    Operands one = in;
    one.queries = part(in.queries);
    one.keys = part(in.keys);
    one.values = part(in.values);
    one.cu_seqlens = std::nullopt;
    if (in.key_mask.has_value()) one.key_mask = part(*in.key_mask);
    if (in.initial_S.has_value()) {
      one.initial_S = in.initial_S->narrow(0, n, 1);
      one.initial_z = in.initial_z->narrow(0, n, 1);
    }
    const MappedAttentionResult result = OneSequence(
        one, options, extra.defined() ? extra.narrow(0, n, 1) : extra);
    outs.push_back(result.out);
    S.push_back(result.state.S);
    z.push_back(result.state.z);
    extras.push_back(result.state.extra);
  }
  if (count == 0) return {at::cat(outs, 1), {}, {}};
  return {
      at::cat(outs, 1), {at::cat(S, 0), at::cat(z, 0), at::cat(extras, 0)}, {}};
}

// Results of the right sizes, without a loop over blocks.
MappedAttentionResult Shapes(const Operands& in, const c10::SymInt& width) {
  const c10::SymInt heads = in.queries.sym_size(2);
  const c10::SymInt value_heads = in.values.sym_size(2);
  const c10::SymInt d_value = in.values.sym_size(3);
  const c10::SymInt states = in.cu_seqlens.has_value()
                                 ? in.cu_seqlens->sym_size(0) - 1
                                 : in.queries.sym_size(0);
  const auto shaped = [&](const std::vector<c10::SymInt>& sizes) {
    return ShapeOf(
        sizes, in.values, in.values.scalar_type(),
        {in.queries, in.keys, in.values, in.initial_S, in.initial_z});
  };
  return {shaped({in.queries.sym_size(0), in.queries.sym_size(1), value_heads,
                  d_value}),
          {shaped({states, value_heads, width, d_value}),
           shaped({states, value_heads, width}),
           shaped({states, heads, width}).detach()},
          {}};
}

}  // namespace

MappedAttentionResult StabilisedFavor(const Operands& in,
                                      const MappedAttentionOptions& options,
                                      const at::Tensor& extra) {
  const int64_t frequencies = Size(*options.features.omega, 1);
  const int pair = options.features.map == FeatureMap::kFavor ? 2 : 1;
  CheckShapes(in, frequencies * pair);
  if (ShapesAlone(in.queries)) return Shapes(in, frequencies * pair);
  return in.cu_seqlens.has_value() ? Packed(in, options, extra)
                                   : OneSequence(in, options, extra);
}

}  // namespace tarn::ops
