#include "runtime/stack/encoder.h"

#include <algorithm>

namespace tarn {

Encoder::Encoder(const ModelConfig& config, const Weights& weights,
                 const Cross* cross, Executor& executor)
    : Block(config, weights.encoder, executor),
      all_(weights),
      cross_(cross),
      sums_(static_cast<size_t>(config.d_model)),
      mean_(config.d_model) {}

void Encoder::Clear() {
  Shrink();
  ClearRows();
  segments_.clear();
}

void Encoder::Add(std::span<const int32_t> tokens) {
  segments_.push_back({nullptr, rows(), static_cast<int64_t>(tokens.size())});
  AddRows(tokens, 0);
}

void Encoder::Prepare() {
  GrowScratch(rows());
  int64_t wanted = 0;
  for (const LayerWeights& layer : weights_.layers) {
    wanted = std::max(wanted, layer.mixer->WorkerFloats(*this));
  }
  if (cross_ != nullptr) wanted = std::max(wanted, cross_->FillFloats());
  GrowWorkerScratch(wanted);
}

void Encoder::Run() {
  Prepare();
  if (rows() == 0) return;
  EmbedRows();
  for (const LayerWeights& w : weights_.layers) {
    Project(w.mixer_norms, w.mixer->in(), in);
    // No part of an encoder has a state.
    if (config_.parallel_residual) FeedForward(w, 0);
    w.mixer->MixSequences(*this);
    AddOut(w.mixer_norms, w.mixer->out());
    if (!config_.parallel_residual) FeedForward(w, 0);
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
  ScaleLogits(logits);
}

// Keys and values of each decoder layer take the place of the encoder's own.
void Encoder::FillMemory(int64_t i, CrossMemory& memory) {
  const Segment& segment = segments[static_cast<size_t>(i)];
  const int64_t layers = static_cast<int64_t>(all_.decoder.layers.size());
  for (int64_t layer = 0; layer < layers; ++layer) {
    const CrossWeights& w =
        all_.decoder.layers[static_cast<size_t>(layer)].cross;
    if (segment.count > 0) {
      float* keys = in[segment.row] + config_.n_heads * config_.d_key;
      PackedMatMul(x_[segment.row], x_.stride, segment.count, w.key_value,
                   {keys, in.stride}, executor_);
    }
    cross_->Fill(*this, segment, layer, memory);
  }
}

}  // namespace tarn
