// The decoder-only language model as a torch::nn module: token embedding,
// positions, causal encoder stack, head. Parameters carry the names of
// WeightShapes() in core/config.h, so that files serve both sides.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>

#include "core/config.h"

namespace tarn::nn {

class LanguageModelImpl : public torch::nn::Module {
 public:
  /// config: finished (FinishConfig). Initialised as PyTorch does, from torch's
  /// default generator.
  explicit LanguageModelImpl(const ModelConfig& config);
  ~LanguageModelImpl() override;
  /// tokens [B, T] int64 -> logits [B, T, vocab_size] float32.
  torch::Tensor forward(const torch::Tensor& tokens);
  const ModelConfig& config() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};
TORCH_MODULE(LanguageModel);

/// Writes every parameter as F32 under its name (WriteSafetensors: by rename,
/// same bytes for the same weights). Throws IoError.
void SaveWeights(LanguageModel& model, const std::string& path,
                 const std::map<std::string, std::string>& metadata = {});

/// Reads a weight file into the model; every tensor of WeightShapes() must be
/// there with its shape and nothing else. Throws FormatError, IoError.
void LoadWeights(LanguageModel& model, const std::string& path);

}  // namespace tarn::nn
