// The attention half of a layer. Work is cut into (sequence, head) or (row,
// head) pieces; each runs the kernel's own serial arithmetic.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/linear_attention/linear_attention.h"
#include "kernels/softmax_attention/softmax_attention.h"
#include "runtime/stack/forward.h"

namespace tarn {
namespace {

// A view [1, count, heads, width] of some heads' columns.
TensorView HeadView(float* data, int64_t count, int64_t stride, int64_t width,
                    int64_t heads = 1) {
  return {data, {1, count, heads, width}, {0, stride, width}, DType::kF32};
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

// A task is some heads of a segment: all of them where segments are many, for
// their states lie in one piece, else one.
void Forward::AttendLinear(int64_t layer) {
  const int64_t segments = static_cast<int64_t>(segments_.size());
  const bool together = !rotated_features_ && !form_.outside();
  const int64_t heads =
      segments >= 4 * executor_.width() && together ? config_.n_heads : 1;
  const int64_t groups = config_.n_heads / heads;
  // About six state entries a nanosecond.
  const int64_t ns = heads * (form_.d_feature() * config_.d_value / 6 + 100);
  ForTasks(segments * groups, ns * ((rows() + segments - 1) / segments),
           [&](int64_t task, int worker) {
             const Segment& segment =
                 segments_[static_cast<size_t>(task / groups)];
             const int64_t head = task % groups * heads;
             if (rotated_features_) {
               AttendHeadRotated(segment, layer, head, worker);
             } else if (form_.outside()) {
               AttendHeadOutside(segment, layer, head, worker);
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
  SerialExecutor serial;
  LinearAttentionPrefill(
      form_.options(),
      HeadView(qkv + head * d_key, count, qkv_.stride, d_key, heads),
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
  const LinearAttentionOptions& options = form_.plain_options();
  // The kernel sums keys into a normalizer in any case; here nobody reads it.
  float* unused = WorkerScratch(worker);
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
  for (int64_t r = segment.row; r < segment.row + count; ++r) {
    form_.Divide(denominators_[r][head], 0.0f, d_value,
                 attended_[r] + head * d_value);
  }
}

// Features of a width of their own, or a signed denominator: token by token,
// the features of one query and one key in scratch.
//   S += phi(k) v^T,  z += phi(k),  n = S^T phi(q)      (the kernel)
//   b += ||phi(k)||,  o = n / d,  d = z . phi(q) kept away from 0 by
//   ||phi(q)|| b                                        (here)
void Forward::AttendHeadOutside(const Segment& segment, int64_t layer,
                                int64_t head, int worker) {
  const int64_t d_key = config_.d_key, d_value = config_.d_value;
  const int64_t d_feature = form_.d_feature();
  float* query = WorkerScratch(worker);
  float* key = query + RowStride(d_feature);
  float* S = segment.state->S(layer) + head * d_feature * d_value;
  float* z = segment.state->Z(layer) + head * d_feature;
  SerialExecutor serial;
  for (int64_t r = segment.row; r < segment.row + segment.count; ++r) {
    float* out = attended_[r] + head * d_value;
    form_.Map(qkv_[r] + head * d_key, query);
    form_.Map(qkv_[r] + key_width_ + head * d_key, key);
    LinearAttentionPrefill(form_.plain_options(),
                           HeadView(query, 1, d_feature, d_feature),
                           HeadView(key, 1, d_feature, d_feature),
                           HeadView(qkv_[r] + 2 * key_width_ + head * d_value,
                                    1, d_value, d_value),
                           S, z, HeadView(out, 1, d_value, d_value), serial);
    float bound = 0.0f;
    if (form_.norm_sums()) {
      float* sum = segment.state->NormSums(layer) + head;
      *sum += NormOfRow(key, d_feature);
      bound = NormOfRow(query, d_feature) * *sum;
    }
    form_.Divide(DotRow(query, z, d_feature), bound, d_value, out);
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

// The segment's rows, each over the keys up to its own.
void Forward::AttendHeadFull(const Segment& segment, int64_t layer,
                             int64_t head, int worker) {
  const int64_t d_key = config_.d_key, d_value = config_.d_value;
  const float scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(d_key)));
  AppendToCache(segment, layer, head);
  // Several rows read the keys again and again, a single one goes on to the
  // next head.
  const bool streams = segment.count == 1;
  const float* next = head + 1 < config_.n_heads
                          ? std::as_const(*segment.state).Keys(layer, head + 1)
                          : nullptr;
  for (int64_t row = segment.row; row < segment.row + segment.count; ++row) {
    SoftmaxAttentionStep(
        qkv_[row] + head * d_key,
        {segment.state->Keys(layer, head), segment.state->Values(layer, head),
         d_key, d_value, positions_[row] + 1, d_key, d_value, streams, next},
        scale, WorkerScratch(worker), attended_[row] + head * d_value);
  }
}

// Every row attends to the keys up to its own, those of its block included. A
// task is one head of one segment: its keys stay in the cache from row to row.
void Forward::AttendFull(int64_t layer) {
  const int64_t heads = config_.n_heads;
  const int64_t segments = static_cast<int64_t>(segments_.size());
  const int64_t longest =
      *std::max_element(positions_.begin(), positions_.end());
  const int64_t rows_each = (rows() + segments - 1) / segments;
  ForTasks(segments * heads,
           rows_each * (longest * (config_.d_key + config_.d_value) / 16 + 100),
           [&](int64_t task, int worker) {
             AttendHeadFull(segments_[static_cast<size_t>(task / heads)], layer,
                            task % heads, worker);
           });
}

}  // namespace tarn
