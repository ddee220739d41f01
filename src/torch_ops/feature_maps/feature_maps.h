// Feature maps that the kernels do not hold, and linear attention with any map:
// by name, or the caller's own function. Registered for Python as
// torch.ops.tarn.*; made of plain torch operators around the chunked kernel, so
// that autograd follows them. Formulas and sources: docs/feature-maps.md.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "config/model_config.h"

namespace tarn::ops {

/// phi on the last axis: [..., K] -> [..., C].
using FeatureFunction = std::function<at::Tensor(const at::Tensor&)>;

/// One feature map with its parameters. x~ = sqrt(softmax_temp) x.
struct FeatureMapOptions {
  FeatureMap map = FeatureMap::kElu1;
  /// [d_key, n_freq], favor to grf only; from DrawOmega.
  std::optional<at::Tensor> omega;
  /// >= 0; none: 1 / sqrt(d_key), or 1 for grf. Not for elementwise maps.
  std::optional<double> softmax_temp;
  /// poly2: kernel a0 + a1 y + a2 y^2, y = softmax_temp q.k; each >= 0.
  std::array<double, 3> coefficients = {1, 2, 1};
  double smoothing = 1;       // smoothed-rff: its constant feature
  bool stabilise = false;     // favor, favor-positive
  FeatureFunction kernel_fn;  // grf: f of f(omega^T x~); empty: relu
  /// The caller's own maps; both set, they replace `map`.
  FeatureFunction query_fn, key_fn;
};

/// Columns of omega, 0 for maps without omega. n_dims 0 means d_key. Throws
/// ArgumentError for an n_dims that leaves no frequency.
int64_t FeatureFrequencies(FeatureMap map, int64_t d_key, int64_t n_dims = 0);
/// C, the width of phi(x). poly2 has no features where a coefficient is 0.
int64_t FeatureWidth(FeatureMap map, int64_t d_key, int64_t n_dims = 0,
                     const std::array<double, 3>& coefficients = {1, 2, 1});
/// signed for maps with features of both signs and for functions of the
/// caller's, whose sign is not known; exact for the others.
Denominator DefaultDenominator(const FeatureMapOptions& options);
/// sqrt(softmax_temp) of the map for rows of width d_key. Throws ArgumentError
/// for a temperature that is negative or that the map does not have.
double TemperatureRoot(const FeatureMapOptions& options, int64_t d_key);
/// omega^T x~ in float32, or float64: [..., n_freq]. Checks omega.
at::Tensor RandomProjection(const FeatureMapOptions& options,
                            const at::Tensor& x);
/// favor's exponents +-u - |x~|^2 / 2, without |x~| if not `with_norm`.
at::Tensor FavorExponents(const FeatureMapOptions& options, const at::Tensor& x,
                          bool with_norm);
/// The value of that name; throws ArgumentError listing all names.
FeatureMap ParseFeatureMap(const std::string& name);
Denominator ParseDenominator(const std::string& name);
/// Throws ArgumentError unless there are three.
std::array<double, 3> ThreeCoefficients(c10::ArrayRef<double> values);

/// Random directions [d_key, n_freq] float32, a pure function of the arguments:
/// N(0, 1) entries, or orthogonal within blocks of d_key columns (Haar), scaled
/// by independent chi(d_key) norms. layer in [0, 2^24), step in [0, 2^40).
at::Tensor DrawOmega(int64_t d_key, int64_t n_freq, bool orthogonal,
                     uint64_t seed, int64_t layer = 0, int64_t step = 0);

/// phi(x) of x [..., K] by name: [..., C], dtype of x (16-bit types are
/// computed in float32). Under `stabilise` rows come without their largest
/// exponent, which cancels for queries only.
at::Tensor Features(const FeatureMapOptions& options, const at::Tensor& x);

/// The recurrent state; undefined tensors mean an empty one. float32 (float64
/// in float64 calls). All zeros is the empty state too.
struct LinearState {
  at::Tensor S;      // [B, HV, C, V]
  at::Tensor z;      // [B, HV, C]
  at::Tensor extra;  // signed: sum of |phi(k)| [B, H]; stabilised favor:
                     // largest exponent so far [B, H, C]; else undefined
};

/// Everything but the tensors of a call. Meanings as in LinearAttentionOptions.
struct MappedAttentionOptions {
  FeatureMapOptions features;
  bool causal = true;
  c10::SymInt causal_offset = 0;           // symbolic while a compiler traces
  std::optional<Denominator> denominator;  // none: DefaultDenominator
  double eps = 1e-6;
  double scale = 1.0;
  int64_t chunk_size = 0;
  std::optional<at::Tensor> key_mask;     // [B, S] bool, true = keep
  std::optional<at::Tensor> key_lengths;  // [B] int32 or int64
  std::optional<at::Tensor> cu_seqlens;   // [N + 1] int32 or int64
};

struct MappedAttentionResult {
  at::Tensor out;      // [B, T, HV, V]; a step: [B, HV, V]
  LinearState state;   // undefined unless asked for; a step: always
  at::Tensor clamped;  // "signed": scalar int64, denominators it clamped
};

/// Linear attention with any feature map. Shapes, dtypes, masks, errors and
/// thread safety as in tarn::ops::LinearAttention (ops.h). Elementwise maps
/// under exact, compat and none run fused; the others compute their features,
/// O(T C) memory, and call the same kernel. Stabilised favor goes through
/// blocks of tokens instead and needs the exact denominator.
///
/// denominator "signed": d = q.z is replaced by sgn(d) max(|d|, 1e-6 B),
/// B = |phi(q_i)| sum_{j in A(i)} |phi(k_j)|: below it d is rounding noise. A
/// clamped d is a constant for the gradient; rows with B = 0 are 0.
MappedAttentionResult MappedLinearAttention(
    const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const MappedAttentionOptions& options, const LinearState& initial = {},
    bool return_state = false);

/// One token a row: queries, keys [B, H, K], values [B, HV, V]; update, then
/// read. causal, causal_offset, chunk_size and masks are not used. `state` is
/// not modified.
MappedAttentionResult MappedLinearAttentionStep(
    const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const MappedAttentionOptions& options, const LinearState& state = {});

/// out_i = sum_{j <= i} (q_i . k_j) v_j: the numerator alone. Heads before
/// time: queries [B, H, T, K], keys [B, H, S, K], values [B, H, S, V] ->
/// [B, H, T, V].
at::Tensor CausalDotProduct(const at::Tensor& queries, const at::Tensor& keys,
                            const at::Tensor& values);

}  // namespace tarn::ops
