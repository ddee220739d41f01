// Models in eval mode, batches whose rows differ in length, and the oracle's
// result for one row alone.
#pragma once

#include <memory>
#include <vector>

#include "reference/torch/plain_earlier.h"
#include "reference/torch/plain_model.h"
#include "torch_nn/models/model.h"
#include "torch_nn/models/variants.h"
#include "torch_nn/torch.h"

namespace tarn::nn::models_test {

inline std::shared_ptr<ModelImpl> EvalModel(const ModelConfig& config,
                                            uint64_t seed = 1) {
  torch::manual_seed(seed);
  auto model = MakeModel(config);
  model->eval();
  return model;
}

inline torch::Tensor Tokens(int64_t batch, int64_t seq_len) {
  return torch::randint(kVocab, {batch, seq_len}, torch::kInt64);
}

inline torch::Tensor Lengths(std::initializer_list<int64_t> lengths) {
  return torch::tensor(std::vector<int64_t>(lengths), torch::kInt64);
}

// Three sequences of 9, 1 and 5 tokens or frames, targets of 4, 7 and 1.
inline Batch RaggedBatch(const ModelConfig& config) {
  const Arch arch = config.arch;
  Batch batch;
  batch.lengths = Lengths({9, 1, 5});
  if (config.ReadsFrames()) {
    batch.frames = torch::randn({3, 9, config.input_dim});
    return batch;
  }
  batch.tokens = Tokens(3, 9);
  if (arch == Arch::kSeq2seq) {
    batch.target_in = Tokens(3, 7);
    batch.target_lengths = Lengths({4, 7, 1});
  }
  return batch;
}

// Row b alone, cut to its lengths.
inline Batch RowOf(const Batch& batch, int64_t b) {
  const auto cut = [&](const torch::Tensor& tokens,
                       const torch::Tensor& lengths) {
    return tokens.narrow(0, b, 1).narrow(1, 0, lengths[b].item<int64_t>());
  };
  Batch row;
  if (batch.frames.defined()) {
    row.frames = cut(batch.frames, batch.lengths);
    return row;
  }
  row.tokens = cut(batch.tokens, batch.lengths);
  if (batch.target_in.defined()) {
    row.target_in = cut(batch.target_in, batch.target_lengths);
  }
  return row;
}

// The logits that count in row b.
inline torch::Tensor Valid(const torch::Tensor& logits, const Batch& batch,
                           int64_t b) {
  if (logits.dim() == 2) return logits[b];
  const torch::Tensor& lengths =
      batch.target_in.defined() ? batch.target_lengths : batch.lengths;
  return logits[b].narrow(0, 0, lengths[b].item<int64_t>());
}

inline torch::Tensor PlainLogits(const ModelConfig& config,
                                 const plain::Weights& weights,
                                 const Batch& row) {
  const torch::Tensor frames =
      row.frames.defined() ? row.frames.to(torch::kFloat64) : row.frames;
  switch (config.arch) {
    case Arch::kEncoder:
      if (config.ReadsFrames()) {
        return plain::FrameLogits(config, weights, frames);
      }
      return plain::ClassLogits(config, weights, row.tokens);
    case Arch::kSeq2seq:
      return plain::TargetLogits(config, weights, row.tokens, row.target_in);
    case Arch::kDecoder:
      return plain::Logits(config, weights, row.tokens);
    default:
      return plain::EarlierLogits(config, weights,
                                  config.ReadsFrames() ? frames : row.tokens);
  }
}

}  // namespace tarn::nn::models_test
