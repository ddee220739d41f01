#include "mixers/linear/runtime_form.h"

#include <algorithm>
#include <cmath>

#include "kernels/activation/activation.h"
#include "kernels/poly2/poly2.h"
#include "mixers/linear/form.h"

namespace tarn::mixers {

LinearForm::LinearForm(const ModelConfig& config)
    : d_key_(config.d_key), d_feature_(LinearKeys(config).Width(config.d_key)) {
  const LinearKeys keys(config);
  norm_sums_ = keys.denominator == Denominator::kSigned;
  outside_ = !IsElementwise(keys.feature_map) || norm_sums_;
  options_.feature_map = keys.feature_map;
  options_.denominator = keys.denominator;
  options_.eps = static_cast<float>(keys.eps);
  plain_.feature_map = FeatureMap::kIdentity;
  plain_.denominator = Denominator::kNone;
}

LinearForm LinearForm::Plain() const {
  LinearForm plain = *this;
  plain.d_key_ = d_feature_;
  plain.outside_ = plain.norm_sums_ = false;
  plain.options_ = plain_;
  return plain;
}

void LinearForm::Map(const float* x, float* features) const {
  if (Traits(options_.feature_map).pairs) return Poly2Row(x, d_key_, features);
  // Elementwise maps; all others are refused when a model is opened.
  FeatureMapRow(options_.feature_map, x, d_key_, features);
}

void LinearForm::Divide(float d, float bound, int64_t width, float* out) const {
  switch (options_.denominator) {
    case Denominator::kNone:
      return;
    case Denominator::kCompat:
      d += options_.eps;
      break;
    case Denominator::kExact:
      d = ExactDenominator(d);
      break;
    case Denominator::kSigned: {
      constexpr float kTau = 1e-6f;
      const float least = kTau * bound;
      // Comparisons with NaN are false, so NaN stays NaN.
      if (std::fabs(d) < least) d = d < 0.0f ? -least : least;
      break;
    }
  }
  if (d == 0.0f && options_.denominator != Denominator::kCompat) {
    std::fill_n(out, width, 0.0f);
    return;
  }
  for (int64_t i = 0; i < width; ++i) out[i] /= d;
}

float DotRow(const float* a, const float* b, int64_t width) {
  constexpr int64_t kSums = 16;  // independent sums, which the compiler can
  float sums[kSums] = {0};       // keep in vectors
  int64_t i = 0;
  for (; i + kSums <= width; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (int64_t j = 0; i < width; ++i, ++j) sums[j] += a[i] * b[i];
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

float NormOfRow(const float* x, int64_t width) {
  return std::sqrt(DotRow(x, x, width));
}

}  // namespace tarn::mixers
