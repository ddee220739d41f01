#include "mixers/gated/runtime_features.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/activation/activation.h"

namespace tarn::mixers {
namespace {

// softmax([2 y, -2 y]) of y [K], which is the first half of `out` [2 K]. The
// largest entry is 2 max |y|; a NaN makes all of them NaN.
void Hedgehog(int64_t d_key, float* out) {
  float most = 0.0f;
  for (int64_t i = 0; i < d_key; ++i) most = std::max(most, std::fabs(out[i]));
  float sum = 0.0f;
  for (int64_t i = 0; i < d_key; ++i) {
    const float y = out[i];
    out[i] = std::exp(2.0f * (y - most));
    out[d_key + i] = std::exp(2.0f * (-y - most));
    sum += out[i] + out[d_key + i];
  }
  for (int64_t i = 0; i < 2 * d_key; ++i) out[i] /= sum;
}

// Entry i of [max(x, 0), max(-x, 0)], of which NaN stays NaN.
float Signed(const float* x, int64_t d_key, int64_t i) {
  const float value = i < d_key ? x[i] : -x[i - d_key];
  return value < 0.0f ? 0.0f : value;
}

void Dpfp(const float* x, int64_t d_key, float* out) {
  const int64_t width = 2 * d_key;
  for (int64_t j = 1; j <= kDpfpRolls; ++j) {
    for (int64_t i = 0; i < width; ++i) {
      const int64_t from = ((i - j) % width + width) % width;
      *out++ = Signed(x, d_key, i) * Signed(x, d_key, from);
    }
  }
}

}  // namespace

RuntimeFeatures::RuntimeFeatures(const QkFeatures& phi, const char* side,
                                 bool unit, MixerTensors& tensors)
    : phi_(phi), unit_(unit) {
  const auto matrix = [&](const char* name) {
    return tensors.Stack({side + std::string(name)}, {phi.d_key}, phi.d_key,
                         phi.has_bias());
  };
  if (phi.has_matrix()) map_ = matrix("_map_projection");
  if (phi.has_factor()) factor_ = matrix("_factor_projection");
}

void RuntimeFeatures::Product(const WeightMatrix& w, const float* from,
                              int64_t heads, float* to, int64_t stride) const {
  SerialExecutor serial;
  PackedMatMul(from, phi_.d_key, heads, w, {to, stride}, serial);
}

void RuntimeFeatures::Map(const float* from, int64_t heads, float* scratch,
                          float* to) const {
  const int64_t d_key = phi_.d_key, width = phi_.width();
  if (phi_.has_matrix()) Product(map_, from, heads, to, width);
  switch (phi_.map) {
    case QkMap::kElu1:
      return FeatureMapRow(FeatureMap::kElu1, from, heads * d_key, to);
    case QkMap::kIdentity:
      std::copy_n(from, heads * d_key, to);
      return;
    case QkMap::kRelu:
      return ReluRow(from, heads * d_key, to);
    case QkMap::kHadamard:
      Product(factor_, from, heads, scratch, d_key);
      for (int64_t i = 0; i < heads * d_key; ++i) to[i] *= scratch[i];
      return;
    case QkMap::kT2r:
      return ReluRow(to, heads * d_key, to);
    case QkMap::kHedgehog:
      for (int64_t h = 0; h < heads; ++h) Hedgehog(d_key, to + h * width);
      return;
    case QkMap::kDpfp:
      for (int64_t h = 0; h < heads; ++h) {
        Dpfp(from + h * d_key, d_key, to + h * width);
      }
  }
}

void RuntimeFeatures::Run(const float* from, int64_t heads, float* scratch,
                          float* to) const {
  Map(from, heads, scratch, to);
  if (!unit_) return;
  const int64_t width = phi_.width();
  for (float* row = to; row < to + heads * width; row += width) {
    float sum = 0.0f;
    for (int64_t i = 0; i < width; ++i) sum += row[i];
    for (int64_t i = 0; i < width; ++i) row[i] /= sum + kUnitSumEps;
  }
}

}  // namespace tarn::mixers
