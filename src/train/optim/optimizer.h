// Parameters with the state of their optimiser; the arithmetic is one pass over
// all of them (kernels/adam).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "torch_nn/torch.h"
#include "train/options/options.h"

namespace tarn::train {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Parameters with their optimiser state. One thread at a time.
class Optimizer {
 public:
  /// parameters: name and leaf tensor, float32, all on one device, which also
  /// holds the state. clip: 0 is off; AdamW clips the norm over all gradients,
  /// RAdam that of each tensor (the paper's code).
  Optimizer(NamedTensors parameters, OptimizerKind kind, double weight_decay,
            double clip);

  /// Applies the gradients held by the parameters and clears them. Returns
  /// their norm before clipping. When that is not finite nothing is changed.
  double Step(double lr);
  int64_t updates() const { return updates_; }

  /// The state as a weight file: tensors "m.<name>" and "v.<name>", the number
  /// of updates as metadata. Load throws FormatError when a tensor is missing,
  /// has another shape, or is one too many.
  void Save(const std::string& path) const;
  void Load(const std::string& path);

 private:
  NamedTensors parameters_;
  std::vector<torch::Tensor> m_, v_;  // parallel to parameters_
  OptimizerKind kind_;
  double weight_decay_, clip_;
  int64_t updates_ = 0;
};

}  // namespace tarn::train
