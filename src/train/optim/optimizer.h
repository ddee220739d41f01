// Parameters with the state of their optimiser; the arithmetic is one pass over
// all of them (kernels/adam).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "torch_nn/torch.h"
#include "train/distributed/ranks.h"
#include "train/options/options.h"

namespace tarn::train {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// How an update is made.
struct UpdateRule {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double weight_decay = 0;
  /// Largest norm of the gradient, 0: any. AdamW clips the norm over all
  /// gradients, RAdam that of each tensor (the paper's code).
  double clip = 0;
};

/// Parameters with their optimiser state. One thread at a time.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Applies the gradients held by the parameters and clears them. Returns
  /// their norm before clipping. When that is not finite nothing is changed.
  virtual double Step(double lr) = 0;
  int64_t updates() const { return updates_; }
  /// Bytes of optimiser state in this process.
  virtual int64_t state_bytes() const = 0;

  /// The state as a weight file: tensors "m.<name>" and "v.<name>", the number
  /// of updates as metadata; the same file whatever the number of ranks. All
  /// ranks call it, the first one writes. Load throws FormatError when a tensor
  /// is missing, has another shape, or is one too many.
  void Save(const std::string& path);
  void Load(const std::string& path);

 protected:
  Optimizer(NamedTensors parameters, UpdateRule rule, Ranks& ranks)
      : parameters_(std::move(parameters)), rule_(rule), ranks_(ranks) {}
  /// m and v of all parameters, of their shapes; all ranks call it.
  virtual std::vector<std::vector<torch::Tensor>> Moments() = 0;
  /// Takes what belongs here; `moments` as Moments gives them.
  virtual void SetMoments(
      const std::vector<std::vector<torch::Tensor>>& moments) = 0;
  /// Updates tensors of any shapes in one pass, with their parts of gradient, m
  /// and v. norms: those of each tensor's whole gradient. Returns false, with
  /// nothing changed, where total is no number.
  bool Apply(double lr, double total, const std::vector<double>& norms,
             const std::vector<torch::Tensor>& parameters,
             const std::vector<torch::Tensor>& gradients,
             const std::vector<torch::Tensor>& m,
             const std::vector<torch::Tensor>& v);

  NamedTensors parameters_;
  UpdateRule rule_;
  Ranks& ranks_;

 private:
  int64_t updates_ = 0;
};

/// parameters: name and leaf tensor, float32, all on one device, where the
/// state is too. ranks outlives the result. shard: each rank keeps and updates
/// its part of the state: gradients are summed by a reduce-scatter, parameters
/// come back by an all-gather. Without it the gradients are those of all ranks
/// already.
std::unique_ptr<Optimizer> MakeOptimizer(NamedTensors parameters,
                                         UpdateRule rule, Ranks& ranks,
                                         bool shard = false);

}  // namespace tarn::train
