#include "runtime/stack/encoder.h"

#include <algorithm>
#include <cmath>

#include "kernels/activation/activation.h"
#include "kernels/softmax_attention/softmax_attention.h"
#include "runtime/state/float_runs.h"
#include "runtime/state/linear_memory.h"

namespace tarn {

Encoder::Encoder(const ModelConfig& config, const Weights& weights,
                 Executor& executor)
    : Block(config, weights.encoder, executor),
      all_(weights),
      plain_(form_.Plain()),
      s_floats_(PaddedFloats(form_.d_feature() * config.d_value)),
      sums_floats_(s_floats_ + PaddedFloats(form_.d_feature())),
      sums_(static_cast<size_t>(config.d_model)),
      mean_(config.d_model) {
  if (!config.UsesFeatureMap()) return;
  const auto floats = [&](const LinearForm& form) {
    return BuildLinearMemoryFloats(form, config.d_key, config.d_value);
  };
  build_floats_ = std::max(floats(form_), RowStride(form_.d_feature()));
  if (rotated_features_)
    build_floats_ = std::max(build_floats_, floats(plain_));
}

void Encoder::Clear() {
  Shrink();
  ClearRows();
  segments_.clear();
}

void Encoder::Add(std::span<const int32_t> tokens) {
  segments_.push_back({rows(), static_cast<int64_t>(tokens.size())});
  AddRows(tokens, 0);
}

void Encoder::Prepare() {
  GrowScratch(rows());
  int64_t wanted = build_floats_ > 0 ? sums_floats_ + build_floats_ : 0;
  if (config_.attention == AttentionKind::kFull) {
    for (const Segment& s : segments_) {
      wanted = std::max(wanted, RowStride(s.count));
    }
  }
  GrowWorkerScratch(wanted);
}

void Encoder::Run() {
  Prepare();
  if (rows() == 0) return;
  EmbedRows();
  for (const LayerWeights& w : weights_.layers) {
    Project(w.norm1, w.qkv, qkv_);
    Attend();
    AddAttended(w.norm1, w.out);
    FeedForward(w);
  }
  if (!config_.final_norm) return;
  ForRows(config_.d_model, [&](int64_t row) { FinalRow(row, x_[row]); });
}

// A task is one head of one sequence.
void Encoder::Attend() {
  if (config_.positions == Positions::kRotary) RotateRows();
  const bool linear = config_.attention == AttentionKind::kLinear;
  const int64_t heads = config_.n_heads;
  const int64_t segments = static_cast<int64_t>(segments_.size());
  // Entries that one query reads: the state's, or all keys and values.
  const int64_t width = linear ? form_.d_feature() : rows() / segments;
  ForTasks(segments * heads,
           rows() / segments *
               (width * (config_.d_key + config_.d_value) / 16 + 100),
           [&](int64_t task, int worker) {
             const Segment& s = segments_[static_cast<size_t>(task / heads)];
             if (s.count == 0) return;
             if (!linear) {
               AttendFull(s, task % heads, worker);
             } else if (rotated_features_) {
               AttendRotated(s, task % heads, worker);
             } else {
               AttendLinear(s, task % heads, worker);
             }
           });
}

Encoder::Head Encoder::HeadOf(const Segment& segment, int64_t head) const {
  float* qkv = qkv_[segment.row];
  const int64_t at = head * config_.d_key, value_at = head * config_.d_value;
  return {{qkv + at, qkv_.stride, segment.count},
          {qkv + key_width_ + at, qkv_.stride, segment.count},
          {qkv + 2 * key_width_ + value_at, qkv_.stride, segment.count},
          {attended_[segment.row] + value_at, attended_.stride, segment.count}};
}

// o_i = phi(q_i)^T S / phi(q_i)^T z over all keys (Katharopoulos et al. 2020,
// eq. (5)-(6)).
void Encoder::AttendLinear(const Segment& segment, int64_t head, int worker) {
  const Head h = HeadOf(segment, head);
  float* S = WorkerScratch(worker);
  float* z = S + s_floats_;
  float* scratch = S + sums_floats_;
  float norm_sum = 0.0f;
  BuildLinearMemory(form_, h.keys, h.values, config_.d_key, config_.d_value, S,
                    z, &norm_sum, scratch);
  ReadLinearMemory(form_, {S, z, norm_sum}, h.queries, h.out, config_.d_value,
                   scratch);
}

// Rotation after the feature map: the numerator sees turned features, the
// denominator plain ones.
void Encoder::AttendRotated(const Segment& segment, int64_t head, int worker) {
  const Head h = HeadOf(segment, head);
  const int64_t d_key = config_.d_key, d_value = config_.d_value;
  float* S = WorkerScratch(worker);
  float* z = S + s_floats_;
  float* scratch = S + sums_floats_;
  BuildLinearMemory(plain_, h.keys, h.values, d_key, d_value, S, z, nullptr,
                    scratch);
  ReadLinearMemory(plain_, {S, z, 0.0f}, h.queries, h.out, d_value, scratch);
  std::fill_n(z, d_key, 0.0f);
  for (int64_t i = 0; i < segment.count; ++i) {
    AddToRow(features_[segment.row + i] + key_width_ + head * d_key, d_key, z);
  }
  for (int64_t i = 0; i < segment.count; ++i) {
    const float* query = features_[segment.row + i] + head * d_key;
    form_.Divide(DotRow(query, z, d_key), 0.0f, d_value, h.out[i]);
  }
}

void Encoder::AttendFull(const Segment& segment, int64_t head, int worker) {
  const Head h = HeadOf(segment, head);
  const KeyValueCache cache = {h.keys.data,    h.values.data, qkv_.stride,
                               qkv_.stride,    segment.count, config_.d_key,
                               config_.d_value};
  const float scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.d_key)));
  for (int64_t i = 0; i < segment.count; ++i) {
    SoftmaxAttentionStep(h.queries[i], cache, scale, WorkerScratch(worker),
                         h.out[i]);
  }
}

void Encoder::Classify(int64_t i, float* logits) {
  const Segment& segment = segments_[static_cast<size_t>(i)];
  std::fill(sums_.begin(), sums_.end(), 0.0);
  for (int64_t r = segment.row; r < segment.row + segment.count; ++r) {
    const float* x = x_[r];
    for (size_t k = 0; k < sums_.size(); ++k) sums_[k] += double{x[k]};
  }
  for (size_t k = 0; k < sums_.size(); ++k) {
    mean_.data()[k] =
        static_cast<float>(sums_[k] / static_cast<double>(segment.count));
  }
  PackedMatMul(mean_.data(), config_.d_model, 1, all_.head,
               {logits, config_.Outputs()}, executor_);
}

// Keys and values of each decoder layer take the place of the encoder's own.
void Encoder::FillMemory(int64_t i, CrossMemory& memory) {
  const Segment& segment = segments_[static_cast<size_t>(i)];
  const int64_t layers = static_cast<int64_t>(all_.decoder.layers.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    const CrossWeights& w =
        all_.decoder.layers[static_cast<size_t>(layer)].cross;
    if (segment.count > 0) {
      PackedMatMul(x_[segment.row], x_.stride, segment.count, w.key_value,
                   {qkv_[segment.row] + key_width_, qkv_.stride}, executor_);
    }
    ForTasks(config_.n_heads,
             segment.count * config_.d_key * config_.d_value / 16 + 100,
             [&](int64_t head, int worker) {
               FillHead(segment, layer, head, worker, memory);
             });
  }
}

void Encoder::FillHead(const Segment& segment, int64_t layer, int64_t head,
                       int worker, CrossMemory& memory) {
  const int64_t d_key = config_.d_key, d_value = config_.d_value;
  float* block = memory.Head(layer, head);
  if (segment.count == 0) return;  // sums over nothing: zero as they are
  const Head h = HeadOf(segment, head);
  if (config_.cross_attention == CrossAttention::kLinear) {
    float* z = block + form_.d_feature() * d_value;
    BuildLinearMemory(form_, h.keys, h.values, d_key, d_value, block, z,
                      z + form_.d_feature(),
                      WorkerScratch(worker) + sums_floats_);
    return;
  }
  float* values = block + segment.count * d_key;
  for (int64_t j = 0; j < segment.count; ++j) {
    CopyFloats(h.keys[j], d_key, block + j * d_key);
    CopyFloats(h.values[j], d_value, values + j * d_value);
  }
}

}  // namespace tarn
