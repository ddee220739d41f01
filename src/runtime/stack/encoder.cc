#include "runtime/stack/encoder.h"

#include <algorithm>

#include "runtime/state/float_runs.h"
#include "runtime/state/linear_memory.h"

namespace tarn {

Encoder::Encoder(const ModelConfig& config, const Weights& weights,
                 Executor& executor)
    : Block(config, weights.encoder, executor),
      all_(weights),
      cross_form_(config),
      sums_(static_cast<size_t>(config.d_model)),
      mean_(config.d_model) {}

void Encoder::Clear() {
  Shrink();
  ClearRows();
  segments.clear();
}

void Encoder::Add(std::span<const int32_t> tokens) {
  segments.push_back({nullptr, rows(), static_cast<int64_t>(tokens.size())});
  AddRows(tokens, 0);
}

void Encoder::Prepare() {
  GrowScratch(rows());
  int64_t wanted = 0;
  for (const LayerWeights& layer : weights_.layers) {
    wanted = std::max(wanted, layer.mixer->WorkerFloats(*this));
  }
  if (config_.arch == Arch::kSeq2seq &&
      config_.cross_attention == CrossAttention::kLinear) {
    wanted = std::max(wanted, BuildLinearMemoryFloats(
                                  cross_form_, config_.d_key, config_.d_value));
  }
  GrowWorkerScratch(wanted);
}

void Encoder::Run() {
  Prepare();
  if (rows() == 0) return;
  EmbedRows();
  for (const LayerWeights& w : weights_.layers) {
    Project(w.norm1, w.mixer->in(), in);
    w.mixer->MixSequences(*this);
    AddOut(w.norm1, w.mixer->out());
    FeedForward(w, 0);  // no part of an encoder has a state
  }
  if (!config_.final_norm) return;
  ForRows(config_.d_model, [&](int64_t row) { FinalRow(row, x_[row]); });
}

void Encoder::Classify(int64_t i, float* logits) {
  const Segment& segment = segments[static_cast<size_t>(i)];
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
  const Segment& segment = segments[static_cast<size_t>(i)];
  const int64_t layers = static_cast<int64_t>(all_.decoder.layers.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    const CrossWeights& w =
        all_.decoder.layers[static_cast<size_t>(layer)].cross;
    if (segment.count > 0) {
      PackedMatMul(x_[segment.row], x_.stride, segment.count, w.key_value,
                   {in[segment.row] + config_.n_heads * config_.d_key, in.stride}, executor_);
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
  if (segment.count == 0) return;  // sums over nothing stay zero
  const int64_t key_width = config_.n_heads * d_key;
  float* row = in[segment.row];
  const HeadRows keys = {row + key_width + head * d_key, in.stride,
                         segment.count};
  const HeadRows values = {row + 2 * key_width + head * d_value, in.stride,
                           segment.count};
  if (config_.cross_attention == CrossAttention::kLinear) {
    float* z = block + cross_form_.d_feature() * d_value;
    BuildLinearMemory(cross_form_, keys, values, d_key, d_value, block, z,
                      z + cross_form_.d_feature(), Scratch(worker));
    return;
  }
  float* to = block + segment.count * d_key;
  for (int64_t j = 0; j < segment.count; ++j) {
    CopyFloats(keys[j], d_key, block + j * d_key);
    CopyFloats(values[j], d_value, to + j * d_value);
  }
}

}  // namespace tarn
