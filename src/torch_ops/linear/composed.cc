// Linear attention from plain torch operators: the fallback for float64 and
// the oracle of the kernels (Katharopoulos et al. 2020, eq. (8)-(11)):
//   P = mask(phi(Q) phi(K)^T);  o = (P V + phi(Q) S_0) / (P 1 + phi(Q) z_0)
// Sizes may be symbolic, so that compilers can trace it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "torch_ops/common/call.h"

namespace tarn::ops {
namespace {

// Working layout: [B, H, G, rows, width], G = HV / H value heads a key head.
struct Sizes {
  c10::SymInt batch, queries, keys, heads, group, d_key, d_value;
  explicit Sizes(const Operands& in)
      : batch(in.queries.sym_size(0)),
        queries(in.queries.sym_size(1)),
        keys(in.keys.sym_size(1)),
        heads(in.keys.sym_size(2)),
        group(in.values.sym_size(2) / in.keys.sym_size(2)),
        d_key(in.keys.sym_size(3)),
        d_value(in.values.sym_size(3)) {}
};

at::Tensor Range(const c10::SymInt& end, const at::Tensor& like) {
  return at::arange(at::Scalar(end), like.options().dtype(at::kLong));
}

at::Tensor Zero(const at::Tensor& like) {
  return at::zeros({}, like.options());
}

// Sequence of each packed token: [T] int64.
at::Tensor SequenceOfToken(const Operands& in, const Sizes& n) {
  return at::searchsorted(in.cu_seqlens->to(at::kLong), Range(n.keys, in.keys),
                          /*out_int32=*/false,
                          /*right=*/true) -
         1;
}

// Allowed (query, key) pairs [T, S]; undefined: all. Positions of a packed
// call count from the same origin for queries and keys, so j <= i + offset
// reads the same inside each sequence.
at::Tensor AllowedPairs(const Operands& in, const Settings& settings,
                        const Sizes& n, const at::Tensor& sequence) {
  at::Tensor allowed;
  if (settings.causal) {
    const at::Tensor last =
        Range(n.queries, in.queries) + at::Scalar(settings.causal_offset);
    allowed = Range(n.keys, in.keys).unsqueeze(0) <= last.unsqueeze(1);
  }
  if (sequence.defined()) {
    const at::Tensor same = sequence.unsqueeze(1) == sequence.unsqueeze(0);
    allowed = allowed.defined() ? allowed.logical_and(same) : same;
  }
  return allowed;
}

// Queries with the factor the kernel gives them: `scale`, or under an exact
// denominator a power of two (a constant: the ratio does not change).
at::Tensor ScaledQueries(const at::Tensor& features,
                         const LinearAttentionOptions& options, double scale) {
  if (options.denominator != Denominator::kExact) return features * scale;
  const at::Tensor largest =
      at::amax(features.detach().abs(), {-1}, /*keepdim=*/true);
  const at::Tensor factor = at::exp2(-largest.log2().floor());
  return features * at::where(factor.isfinite().logical_and(factor > 0), factor,
                              at::ones_like(factor));
}

// State rows as [N, H, G, width, columns].
at::Tensor ByGroup(const at::Tensor& state, const Sizes& n,
                   const c10::SymInt& columns) {
  return state.reshape_symint(
      {state.sym_size(0), n.heads, n.group, n.d_key, columns});
}

// phi(Q) times the state each query starts from: [B, H, G, T, columns].
at::Tensor FromInitial(const at::Tensor& queries, const at::Tensor& state,
                       const at::Tensor& sequence) {
  if (!sequence.defined()) return at::matmul(queries, state);
  const at::Tensor rows =  // [T, H, 1, 1, K]
      queries.squeeze(0).permute({2, 0, 1, 3}).unsqueeze(3);
  return at::matmul(rows, state.index_select(0, sequence))
      .squeeze(3)
      .permute({1, 2, 0, 3})
      .unsqueeze(0);
}

// Sum over the kept keys of each sequence, plus the initial state.
std::pair<at::Tensor, at::Tensor> FinalState(const Operands& in, const Sizes& n,
                                             at::Tensor keys,
                                             const at::Tensor& values,
                                             const at::Tensor& sequence) {
  c10::SymInt states = n.batch;
  if (sequence.defined()) {
    states = in.cu_seqlens->sym_size(0) - 1;
    const at::Tensor mine =  // [N, 1, 1, T, 1]
        (Range(states, in.keys).unsqueeze(1) == sequence.unsqueeze(0))
            .reshape_symint({states, 1, 1, n.keys, 1});
    keys = at::where(mine, keys, Zero(keys));
  }
  const c10::SymInt value_heads = n.heads * n.group;
  at::Tensor S = at::matmul(keys.transpose(-1, -2), values)
                     .reshape_symint({states, value_heads, n.d_key, n.d_value});
  at::Tensor z = keys.sum(-2)
                     .expand_symint({states, n.heads, n.group, n.d_key})
                     .reshape_symint({states, value_heads, n.d_key});
  if (in.initial_S.has_value()) {
    S = S + *in.initial_S;
    z = z + *in.initial_z;
  }
  return {S.contiguous(), z.contiguous()};
}

// Numerators over denominators; rows without a denominator are 0.
std::pair<at::Tensor, at::Tensor> Divide(const at::Tensor& numerators,
                                         at::Tensor denominators,
                                         const LinearAttentionOptions& options,
                                         double eps) {
  switch (options.denominator) {
    case Denominator::kNone:
      return {numerators, at::ones_like(denominators)};
    case Denominator::kCompat:
      denominators = denominators + eps;
      return {numerators / denominators, denominators};
    case Denominator::kSigned:  // refused by the checks
    case Denominator::kExact:
      break;
  }
  const at::Tensor empty = denominators <= 0;  // NaN passes
  const at::Tensor safe =
      at::where(empty, at::ones_like(denominators), denominators);
  return {at::where(empty, Zero(numerators), numerators / safe),
          at::where(empty, Zero(denominators), denominators)};
}

// [B, H, G, T, columns] -> [B, T, HV, columns].
at::Tensor TimeFirst(const at::Tensor& rows, const Sizes& n,
                     const c10::SymInt& columns) {
  return rows.expand_symint({n.batch, n.heads, n.group, n.queries, columns})
      .permute({0, 3, 1, 2, 4})
      .reshape_symint({n.batch, n.queries, n.heads * n.group, columns})
      .contiguous();
}

}  // namespace

bool HoldsData(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.has_storage() &&
         !tensor.key_set().has(c10::DispatchKey::Python) &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set();
}

// elu(x) + 1 as exp(x) where x <= 0, which does not cancel. The clamp keeps the
// branch that is not taken finite, so that its gradient is 0.
at::Tensor ElementwiseFeatures(FeatureMap map, const at::Tensor& x) {
  switch (map) {
    case FeatureMap::kElu1:
      return at::where(x > 0, x + 1, x.clamp_max(0).exp());
    case FeatureMap::kIdentity:
      return x;
    case FeatureMap::kRelu:
      return x.relu();
    case FeatureMap::kRelu2:
      return x.relu().square();
    case FeatureMap::kPoly2:
    case FeatureMap::kFavor:
    case FeatureMap::kFavorPositive:
    case FeatureMap::kRff:
    case FeatureMap::kSmoothedRff:
    case FeatureMap::kGrf:
      break;
  }
  throw ArgumentError("feature_map", "a map of single entries", Name(map));
}

at::Tensor KeptKeys(const Operands& in) {
  at::Tensor kept;
  if (in.key_mask.has_value()) kept = *in.key_mask;
  if (in.key_lengths.has_value()) {
    const at::Tensor within = Range(in.keys.sym_size(1), in.keys).unsqueeze(0) <
                              in.key_lengths->unsqueeze(1);
    kept = kept.defined() ? kept.logical_and(within) : within;
  }
  return kept;
}

Results ComposedLinearAttention(const Operands& in, const Settings& settings,
                                bool return_state) {
  const LinearAttentionOptions options = WithTorchErrors([&] {
    if (HoldsData(in.queries)) MakeKernelCall(in, settings);
    Settings traced = settings;  // a symbolic offset stays out of the options
    traced.causal_offset = 0;
    return KernelOptions(traced);
  });
  const Sizes n(in);
  at::Tensor keys = in.keys, values = in.values;
  const at::Tensor kept = KeptKeys(in);
  // Before phi and after: neither the row nor its gradient may be NaN.
  const auto keep = [&](const at::Tensor& rows) {
    return kept.defined()
               ? at::where(kept.unsqueeze(-1).unsqueeze(-1), rows, Zero(rows))
               : rows;
  };
  keys = keep(ElementwiseFeatures(options.feature_map, keep(keys)))
             .permute({0, 2, 1, 3})
             .unsqueeze(2);  // [B, H, 1, S, K]
  values = keep(values)
               .reshape_symint({n.batch, n.keys, n.heads, n.group, n.d_value})
               .permute({0, 2, 3, 1, 4});  // [B, H, G, S, V]
  const at::Tensor queries =
      ScaledQueries(ElementwiseFeatures(options.feature_map, in.queries),
                    options, settings.scale)
          .permute({0, 2, 1, 3})
          .unsqueeze(2);  // [B, H, 1, T, K]
  at::Tensor sequence;
  if (in.cu_seqlens.has_value()) sequence = SequenceOfToken(in, n);

  at::Tensor scores = at::matmul(queries, keys.transpose(-1, -2));
  const at::Tensor allowed = AllowedPairs(in, settings, n, sequence);
  if (allowed.defined()) scores = at::where(allowed, scores, Zero(scores));
  at::Tensor numerators = at::matmul(scores, values);
  at::Tensor denominators = scores.sum(-1, /*keepdim=*/true);
  if (in.initial_S.has_value()) {
    numerators =
        numerators +
        FromInitial(queries, ByGroup(*in.initial_S, n, n.d_value), sequence);
    denominators = denominators +
                   FromInitial(queries, ByGroup(*in.initial_z, n, 1), sequence);
  }
  const auto [out, divisors] =
      Divide(numerators, denominators, options, settings.eps);
  at::Tensor S = at::empty({0}, in.queries.options()), z = at::empty_like(S);
  if (return_state) {
    std::tie(S, z) = FinalState(in, n, keys, values, sequence);
  }
  return {TimeFirst(out, n, n.d_value), S, z,
          TimeFirst(divisors.detach(), n, 1).squeeze(3)};
}

}  // namespace tarn::ops
