// The attention half of a layer. Work is cut into (sequence, head) or (row,
// head) pieces; each runs the kernel's own serial arithmetic.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/activation/activation.h"
#include "kernels/linear_attention/linear_attention.h"
#include "kernels/rotary/rotary.h"
#include "kernels/softmax_attention/softmax_attention.h"
#include "runtime/forward.h"

namespace tarn {
namespace {

// A view [1, count, heads, width] of some heads' columns.
TensorView HeadView(float* data, int64_t count, int64_t stride, int64_t width,
                    int64_t heads = 1) {
  return {data, {1, count, heads, width}, {0, stride, width}, DType::kF32};
}

// The power of two that brings the largest entry near 1; 1 where there is
// none. An exact quotient does not change, and underflows later.
float PowerOfTwoScale(const float* x, int64_t count) {
  float largest = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (largest == 0.0f || !std::isfinite(largest)) return 1.0f;
  return std::ldexp(1.0f, std::clamp(-std::ilogb(largest), -126, 126));
}

}  // namespace

void Forward::Attend(int64_t layer) {
  if (config_.positions == Positions::kRotary) RotateRows();
  if (config_.attention == AttentionKind::kLinear) {
    AttendLinear(layer);
  } else {
    AttendFull(layer);
  }
}

void Forward::RotateRows() {
  ForRows(key_width_, [&](int64_t row) {
    if (rotated_features_) RotateFeatures(row);
    const float* cos = places_[row];
    // Queries and keys stand side by side: 2 H heads to turn.
    RotateRow(cos, cos + config_.d_key / 2, 2 * config_.n_heads, config_.d_key,
              qkv_[row]);
  });
}

// phi(q) and phi(k) into features_ and, to be turned, in place of q and k.
void Forward::RotateFeatures(int64_t row) {
  float* qk = qkv_[row];
  if (config_.feature_map == FeatureMap::kElu1) {
    Elu1Row(qk, 2 * key_width_, qk);
  }
  if (config_.denominator == Denominator::kExact) {
    for (int64_t head = 0; head < config_.n_heads; ++head) {
      float* q = qk + head * config_.d_key;
      const float scale = PowerOfTwoScale(q, config_.d_key);
      for (int64_t i = 0; i < config_.d_key; ++i) q[i] *= scale;
    }
  }
  std::copy_n(qk, 2 * key_width_, features_[row]);
}

// A task is some heads of a segment: all of them where segments are many, for
// their states lie in one piece, else one.
void Forward::AttendLinear(int64_t layer) {
  const int64_t segments = static_cast<int64_t>(segments_.size());
  const int64_t heads = segments >= 4 * executor_.width() && !rotated_features_
                            ? config_.n_heads
                            : 1;
  const int64_t groups = config_.n_heads / heads;
  // About six state entries a nanosecond.
  const int64_t ns = heads * (config_.d_key * config_.d_value / 6 + 100);
  ForTasks(segments * groups, ns * ((rows() + segments - 1) / segments),
           [&](int64_t task, int worker) {
             const Segment& segment = segments_[task / groups];
             const int64_t head = task % groups * heads;
             if (rotated_features_) {
               AttendHeadRotated(segment, layer, head, worker);
             } else {
               AttendHeads(segment, layer, head, heads);
             }
           });
}

// Katharopoulos et al. 2020, eq. (18)-(20), for the segment's tokens in order.
void Forward::AttendHeads(const Segment& segment, int64_t layer, int64_t head,
                          int64_t heads) {
  const int64_t d_key = config_.d_key, d_value = config_.d_value;
  const int64_t count = segment.count;
  float* qkv = qkv_[segment.row];
  LinearAttentionOptions options;
  options.feature_map = config_.feature_map;
  options.denominator = config_.denominator;
  options.eps = static_cast<float>(config_.eps);
  SerialExecutor serial;
  LinearAttentionPrefill(
      options, HeadView(qkv + head * d_key, count, qkv_.stride, d_key, heads),
      HeadView(qkv + key_width_ + head * d_key, count, qkv_.stride, d_key,
               heads),
      HeadView(qkv + 2 * key_width_ + head * d_value, count, qkv_.stride,
               d_value, heads),
      segment.state->S(layer) + head * d_key * d_value,
      segment.state->Z(layer) + head * d_key,
      HeadView(attended_[segment.row] + head * d_value, count, attended_.stride,
               d_value, heads),
      serial);
}

// Rotation after the feature map (Su et al. 2021, eq. (19)): the numerator sees
// turned features, the denominator plain ones. Two runs of the recurrence:
//   S += R phi(k) v^T,  n = S^T R phi(q)
//   z += phi(k) 1,      d = z^T phi(q)      (a state of one value column)
void Forward::AttendHeadRotated(const Segment& segment, int64_t layer,
                                int64_t head, int worker) {
  const int64_t d_key = config_.d_key, d_value = config_.d_value;
  const int64_t count = segment.count;
  float* qkv = qkv_[segment.row];
  float* features = features_[segment.row];
  LinearAttentionOptions options;
  options.feature_map = FeatureMap::kIdentity;
  options.denominator = Denominator::kNone;
  // The kernel sums keys into a normalizer in any case; here nobody reads it.
  float* unused = worker_scratch_.data() + worker * worker_floats_;
  std::fill_n(unused, d_key, 0.0f);
  SerialExecutor serial;
  LinearAttentionPrefill(
      options, HeadView(qkv + head * d_key, count, qkv_.stride, d_key),
      HeadView(qkv + key_width_ + head * d_key, count, qkv_.stride, d_key),
      HeadView(qkv + 2 * key_width_ + head * d_value, count, qkv_.stride,
               d_value),
      segment.state->S(layer) + head * d_key * d_value, unused,
      HeadView(attended_[segment.row] + head * d_value, count, attended_.stride,
               d_value),
      serial);
  float one = 1.0f;
  LinearAttentionPrefill(
      options,
      HeadView(features + head * d_key, count, features_.stride, d_key),
      HeadView(features + key_width_ + head * d_key, count, features_.stride,
               d_key),
      HeadView(&one, count, 0, 1), segment.state->Z(layer) + head * d_key,
      unused,
      HeadView(denominators_[segment.row] + head, count, denominators_.stride,
               1),
      serial);
  Divide(segment, head);
}

void Forward::Divide(const Segment& segment, int64_t head) {
  if (config_.denominator == Denominator::kNone) return;
  const int64_t d_value = config_.d_value;
  for (int64_t r = segment.row; r < segment.row + segment.count; ++r) {
    float* out = attended_[r] + head * d_value;
    float d = denominators_[r][head];
    if (config_.denominator == Denominator::kCompat) {
      d += static_cast<float>(config_.eps);
    } else if (d <= 0.0f) {  // an empty row is zero; NaN passes
      std::fill_n(out, d_value, 0.0f);
      continue;
    }
    for (int64_t i = 0; i < d_value; ++i) out[i] /= d;
  }
}

void Forward::AppendToCache(const Segment& segment, int64_t layer,
                            int64_t head) {
  const int64_t d_key = config_.d_key, d_value = config_.d_value;
  for (int64_t i = 0; i < segment.count; ++i) {
    const int64_t at = segment.state->position + i;
    const float* qkv = qkv_[segment.row + i];
    std::copy_n(qkv + key_width_ + head * d_key, d_key,
                segment.state->Keys(layer, head) + at * d_key);
    std::copy_n(qkv + 2 * key_width_ + head * d_value, d_value,
                segment.state->Values(layer, head) + at * d_value);
  }
}

// Every row attends to the keys up to its own, those of its block included. A
// task is one head of one segment: its keys stay in the cache from row to row.
void Forward::AttendFull(int64_t layer) {
  const int64_t heads = config_.n_heads;
  const int64_t d_key = config_.d_key, d_value = config_.d_value;
  const float scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(d_key)));
  const int64_t segments = static_cast<int64_t>(segments_.size());
  const int64_t longest =
      *std::max_element(positions_.begin(), positions_.end());
  const int64_t rows_each = (rows() + segments - 1) / segments;
  ForTasks(segments * heads,
           rows_each * (longest * (d_key + d_value) / 16 + 100),
           [&](int64_t task, int worker) {
             const Segment& s = segments_[task / heads];
             const int64_t head = task % heads;
             AppendToCache(s, layer, head);
             for (int64_t row = s.row; row < s.row + s.count; ++row) {
               SoftmaxAttentionStep(
                   qkv_[row] + head * d_key,
                   {s.state->Keys(layer, head), s.state->Values(layer, head),
                    d_key, d_value, positions_[row] + 1, d_key, d_value},
                   scale, worker_scratch_.data() + worker * worker_floats_,
                   attended_[row] + head * d_value);
             }
           });
}

}  // namespace tarn
