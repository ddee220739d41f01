// The linear attention of a model as the runtime computes it: what the kernels
// do by themselves, and what is left to do around them for maps that have a
// width of their own and for the signed denominator.
#pragma once

#include <cstdint>

#include "config/model_config.h"
#include "kernels/linear_attention/linear_attention.h"

namespace tarn::mixers {

/// Immutable, thread-safe. Allocates nothing.
class LinearForm {
 public:
  explicit LinearForm(const ModelConfig& config);
  /// The form for rows that are features already, without a division.
  LinearForm Plain() const;

  int64_t d_feature() const { return d_feature_; }
  /// Features are written out, a token at a time, and the kernel sees them
  /// through the identity map; the division is Divide()'s.
  bool outside() const { return outside_; }
  /// Sums of ||phi(k)|| belong to the state, one per head.
  bool norm_sums() const { return norm_sums_; }
  /// The options of a kernel that maps and divides by itself (not outside()).
  const LinearAttentionOptions& options() const { return options_; }
  /// The options of a kernel that gets features and returns numerators.
  const LinearAttentionOptions& plain_options() const { return plain_; }

  /// phi of one head's row x [d_key] into features [d_feature()]; features may
  /// be x when the widths are equal.
  void Map(const float* x, float* features) const;
  /// out /= d by the rule of the model's denominator: exact (zero where d is
  /// not positive), compat (d + eps), none, or signed: sgn(d) max(|d|, tau
  /// bound), sgn(0) = +1, where bound = ||phi(q)|| sum ||phi(k)|| and tau =
  /// 1e-6; below tau bound a float32 sum is rounding noise. An empty row is
  /// zero; NaN stays NaN.
  void Divide(float d, float bound, int64_t width, float* out) const;

 private:
  int64_t d_key_, d_feature_;
  bool outside_, norm_sums_;
  LinearAttentionOptions options_, plain_;
};

/// a . b and sqrt(x . x), in an order of sums that depends on the width alone.
float DotRow(const float* a, const float* b, int64_t width);
float NormOfRow(const float* x, int64_t width);

}  // namespace tarn::mixers
