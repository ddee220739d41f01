// Linear attention from plain torch operators: what serves devices without
// kernels and float64, and the oracle of the kernels (Katharopoulos et al.
// 2020, eq. (8)-(11)), chunk by chunk. With S_n, z_n the sums over the chunks
// before chunk n:
//   P = mask(phi(Q) phi(K)^T);  o = (P V + phi(Q) S_n) / (P 1 + phi(Q) z_n)
// A column of ones next to the values gives z and the denominators from the
// same products. Sizes may be symbolic, so that compilers can trace it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "torch_ops/common/call.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/linear/layout.h"

namespace tarn::ops {
namespace {

// Working layout: [B, H, rows, width]; the G = HV / H value heads of a key head
// are side by side in the columns.
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

// Checks for one device, and the dtype and shape of lengths.
void CheckDevices(const Operands& in) {
  const c10::Device device = in.queries.device();
  const auto want = [&](const char* name, const OptionalTensor& x) {
    if (!x.has_value() || x->device() == device) return;
    throw DeviceError(StrCat("linear_attention: ", name), device.str(),
                      x->device().str());
  };
  want("keys", in.keys);
  want("values", in.values);
  want("key_mask", in.key_mask);
  want("key_lengths", in.key_lengths);
  want("cu_seqlens", in.cu_seqlens);
  want("initial_S", in.initial_S);
  want("initial_z", in.initial_z);
  if (!in.key_lengths.has_value()) return;
  const at::Tensor& lengths = *in.key_lengths;
  if (lengths.scalar_type() != at::kInt && lengths.scalar_type() != at::kLong) {
    throw DTypeError("linear_attention: key_lengths", "Int or Long",
                     c10::toString(lengths.scalar_type()));
  }
  if (lengths.dim() != 1 || lengths.size(0) != in.queries.size(0)) {
    throw ShapeError("linear_attention: key_lengths",
                     ShapeText({in.queries.size(0)}),
                     ShapeText(lengths.sizes().vec()));
  }
}

// Shapes and ranges, before any work. What a compiler traces has no addresses
// and symbolic sizes: there the operators below report what does not fit.
LinearAttentionOptions Checked(const Operands& in, const Settings& settings) {
  return WithTorchErrors([&] {
    if (!IsTraced(in.queries)) {
      Operands seen = in;
      CheckDevices(in);
      if (!in.queries.device().is_cpu()) {
        // The values of lengths stay where they are: fetching them would wait
        // for the device. Bounds of packed sequences are few and decide shapes.
        seen.key_lengths.reset();
        if (in.cu_seqlens.has_value()) {
          seen.cu_seqlens = in.cu_seqlens->to(at::kCPU);
        }
      }
      (void)MakeKernelCall(seen, settings);
    }
    Settings traced = settings;  // a symbolic offset stays out of the options
    traced.causal_offset = 0;
    return KernelOptions(traced);
  });
}

// One call; every member is [B, H, ...].
class Composed {
 public:
  Composed(const Operands& in, const Settings& settings,
           const LinearAttentionOptions& options)
      : in_(in),
        settings_(settings),
        options_(options),
        n_(in),
        layout_(in, settings) {
    const at::Tensor kept = KeptKeys(in);
    // Keys that are not kept are zeroed before phi and after it: neither the
    // row nor its gradient may be NaN.
    const auto keep = [&](const at::Tensor& rows) {
      return kept.defined()
                 ? at::where(kept.unsqueeze(-1).unsqueeze(-1), rows, Zero(rows))
                 : rows;
    };
    const FeatureMap map = options.feature_map;
    keys_ = layout_.PlaceKeys(
        keep(ElementwiseFeatures(map, keep(Wide(in.keys)))).transpose(1, 2));
    values_ = layout_.PlaceKeys(Columns(keep(Wide(in.values))));
    queries_ = layout_.PlaceQueries(
        ScaledQueries(ElementwiseFeatures(map, Wide(in.queries)), options,
                      settings.scale)
            .transpose(1, 2));
    sums_ = at::matmul(keys_.transpose(-1, -2), values_);
    if (!in.initial_S.has_value()) return;
    initial_ = at::cat({*in.initial_S, in.initial_z->unsqueeze(-1)}, -1)
                   .unflatten_symint(1, {n_.heads, n_.group})
                   .transpose(2, 3)
                   .flatten(3);  // [sequences, H, K, G (V + 1)]
  }

  Results Run(bool return_state) const {
    const at::Tensor total = layout_.Total(sums_);
    at::Tensor rows = FromState(settings_.causal ? at::Tensor() : total);
    if (settings_.causal) rows = rows + InsideChunks();
    const at::Tensor split =  // [B, T, H, G, V + 1]
        layout_.TakeQueries(rows)
            .transpose(1, 2)
            .unflatten_symint(3, {n_.group, n_.d_value + 1})
            .flatten(2, 3);
    const auto [out, divisors] = Divide(split.narrow_symint(-1, 0, n_.d_value),
                                        split.narrow_symint(-1, n_.d_value, 1));
    at::Tensor S = at::empty({0}, sums_.options()), z = at::empty_like(S);
    if (return_state) {
      const at::Tensor state =  // [sequences, HV, K, V + 1]
          (initial_.defined() ? total + initial_ : total)
              .unflatten_symint(3, {n_.group, n_.d_value + 1})
              .transpose(2, 3)
              .flatten(1, 2);
      S = state.narrow_symint(-1, 0, n_.d_value).contiguous();
      z = state.select_symint(-1, n_.d_value).contiguous();
    }
    return {out.to(in_.queries.scalar_type()).contiguous(), S, z,
            divisors.detach().squeeze(-1).contiguous()};
  }

 private:
  // [B, S, HV, V] with a column of ones as [B, H, S, G (V + 1)].
  at::Tensor Columns(const at::Tensor& values) const {
    std::vector<c10::SymInt> column = values.sym_sizes().vec();
    column.back() = 1;
    return at::cat({values, at::ones_symint(column, values.options())}, -1)
        .unflatten_symint(2, {n_.heads, n_.group})
        .flatten(3)
        .transpose(1, 2);
  }

  // phi(Q) times the sums before each chunk, or times `known` for all chunks.
  at::Tensor FromState(const at::Tensor& known) const {
    at::Tensor state =
        known.defined() ? layout_.ByChunk(known) : layout_.Before(sums_);
    if (initial_.defined()) state = state + layout_.ByChunk(initial_);
    return at::matmul(queries_, state);
  }

  // Pairs of one chunk: key slot <= query slot.
  at::Tensor InsideChunks() const {
    const at::Tensor slot = Range(layout_.chunk(), in_.queries);
    const at::Tensor scores = at::matmul(queries_, keys_.transpose(-1, -2));
    return at::matmul(
        at::where(slot.unsqueeze(0) <= slot.unsqueeze(1), scores, Zero(scores)),
        values_);
  }

  // Numerators over denominators; rows without a denominator are 0.
  std::pair<at::Tensor, at::Tensor> Divide(const at::Tensor& numerators,
                                           at::Tensor denominators) const {
    switch (options_.denominator) {
      case Denominator::kNone:
        return {numerators, at::ones_like(denominators)};
      case Denominator::kCompat:
        denominators = denominators + settings_.eps;
        return {numerators / denominators, denominators};
      case Denominator::kSigned:  // refused by the checks
      case Denominator::kExact:
        break;
    }
    const at::Tensor empty = denominators < kLeastDenominator;  // NaN passes
    const at::Tensor safe =
        at::where(empty, at::ones_like(denominators), denominators);
    return {at::where(empty, Zero(numerators), numerators / safe),
            at::where(empty, Zero(denominators), denominators)};
  }

  const Operands& in_;
  const Settings& settings_;
  const LinearAttentionOptions& options_;
  Sizes n_;
  ChunkLayout layout_;
  at::Tensor queries_, keys_, values_;  // [B, H, N, C, K or G (V + 1)]
  at::Tensor sums_;                     // [B, H, N, K, G (V + 1)]
  at::Tensor initial_;                  // [sequences, H, K, G (V + 1)]
};

// No sequence at all: nothing to place.
bool HoldsNoSequence(const Operands& in) {
  return in.cu_seqlens.has_value() && in.cu_seqlens->sym_size(0) == 1;
}

// Everything is empty; the graph leads to every argument all the same.
Results Nothing(const Operands& in, bool return_state) {
  const Sizes n(in);
  const at::Tensor wide = Wide(in.values);
  const c10::SymInt heads = n.heads * n.group;
  const auto state = [&](const OptionalTensor& initial,
                         std::vector<c10::SymInt> shape) {
    if (return_state && initial.has_value()) return initial->clone();
    return at::zeros_symint(return_state ? shape : std::vector<c10::SymInt>{0},
                            wide.options());
  };
  return {in.values + (in.queries.sum() + in.keys.sum()),
          state(in.initial_S, {0, heads, n.d_key, n.d_value}),
          state(in.initial_z, {0, heads, n.d_key}),
          at::zeros_symint({n.batch, n.queries, heads}, wide.options())};
}

}  // namespace

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
    case FeatureMap::kSoftplus:
      return at::logaddexp(x, at::zeros_like(x));
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
  return KeptPositions(in.key_mask, in.key_lengths, in.keys.sym_size(1));
}

Results ComposedLinearAttention(const Operands& in, const Settings& settings,
                                bool return_state) {
  const LinearAttentionOptions options = Checked(in, settings);
  if (HoldsNoSequence(in)) return Nothing(in, return_state);
  return Composed(in, settings, options).Run(return_state);
}

Operands AsSequence(const StepOperands& in) {
  const auto with_time = [](const char* name, const at::Tensor& row) {
    if (row.dim() != 3) {
      throw ShapeError(StrCat("linear_attention_step: ", name),
                       "3 axes [batch, heads, width]", StrCat(row.sym_sizes()));
    }
    return row.unsqueeze(1);
  };
  Operands sequence;
  sequence.queries = with_time("queries", in.queries);
  sequence.keys = with_time("keys", in.keys);
  sequence.values = with_time("values", in.values);
  sequence.initial_S = in.state_S;
  sequence.initial_z = in.state_z;
  return sequence;
}

StepResults ComposedLinearAttentionStep(const StepOperands& in,
                                        const Settings& settings) {
  return WithTorchErrors([&]() -> StepResults {
    const auto [out, S, z, _] = ComposedLinearAttention(
        AsSequence(in), settings, /*return_state=*/true);
    return {out.squeeze(1), S, z};
  });
}

}  // namespace tarn::ops
