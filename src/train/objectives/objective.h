// What a model learns: its rows, its loss, and how it is judged. One objective
// a task; the trainer around it is the same for all.
#pragma once

#include <memory>
#include <string>

#include "torch_nn/models/model.h"
#include "train/run/log.h"
#include "train/run/plan.h"

namespace tarn::train {

/// One thread at a time. Must not outlive the plan it was made for.
class Objective {
 public:
  virtual ~Objective() = default;

  /// Adds the gradient of update `step` to the parameters: of the mean loss
  /// over everything that all its rows predict. A pure function of weights and
  /// step (torch's generator, which dropout draws from, is seeded by the
  /// caller). Fills in loss, the other figures of training rows, and `tokens`
  /// with those of this update alone.
  virtual void Learn(nn::ModelImpl& model, int64_t step,
                     StepFigures& figures) = 0;

  /// Fills in the figures of held-out data, in eval mode, without gradients;
  /// the model's mode is restored. Sums in double, in a fixed order.
  virtual void LookAtHeldOut(nn::ModelImpl& model, StepFigures& figures) = 0;

  /// A piece of what the model does now, for people. Leaves torch's generator
  /// alone.
  virtual std::string Sample(nn::ModelImpl& model) = 0;
};

/// The objective of the plan's task.
std::unique_ptr<Objective> MakeObjective(const RunPlan& plan);

/// One a kind of data; `plan` holds it.
std::unique_ptr<Objective> MakeTextObjective(const RunPlan& plan);
std::unique_ptr<Objective> MakeGeneratedObjective(const RunPlan& plan);
std::unique_ptr<Objective> MakeLabelObjective(const RunPlan& plan);
std::unique_ptr<Objective> MakeTargetObjective(const RunPlan& plan);
std::unique_ptr<Objective> MakeImageObjective(const RunPlan& plan);
std::unique_ptr<Objective> MakeSpeechObjective(const RunPlan& plan);

/// Eval mode (no dropout) without gradients, for the length of a scope.
class EvalMode {
 public:
  explicit EvalMode(nn::ModelImpl& model)
      : model_(model), was_training_(model.is_training()) {
    model_.eval();
  }
  ~EvalMode() { model_.train(was_training_); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  nn::ModelImpl& model_;
  bool was_training_;
  torch::NoGradGuard no_grad_;
};

}  // namespace tarn::train
