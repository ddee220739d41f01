// What a model learns: its rows, its loss, and how it is judged. Each task has
// one objective; the trainer around it is the same for all.
#pragma once

#include <memory>
#include <string>

#include "torch_nn/models/model.h"
#include "train/distributed/sequence.h"
#include "train/run/log.h"
#include "train/run/plan.h"

namespace tarn::train {

/// One forward pass of an update. Rows are numbered through the whole update,
/// so that 4 passes of 2 rows are the same eight as 8 of 1.
struct Part {
  int64_t step = 1;  // of the update, from 1
  int64_t pass = 0;  // forward passes before this one, those of earlier updates
                     // among them
  int64_t first = 0;  // row of the update
  int64_t rows = 0;   // as many as options.batch
  // The rows of this process among these: [begin, begin + count).
  int64_t begin = 0, count = 0;
  // The ranks over which the tokens of each row are cut, of which this process
  // has one piece; null: it has all tokens.
  const nn::SequenceRanks* sequence = nullptr;

  /// The share of the tokens of rows of `seq_len` that is here.
  double share(int64_t seq_len) const {
    const double rows_here =
        static_cast<double>(count) / static_cast<double>(rows);
    if (sequence == nullptr) return rows_here;
    return rows_here * static_cast<double>(Cut(seq_len).size()) /
           static_cast<double>(seq_len);
  }
  nn::SequenceCut Cut(int64_t seq_len) const { return {sequence, seq_len}; }
  /// The first of the ranks that share these rows.
  bool counts_rows() const {
    return sequence == nullptr || sequence->rank() == 0;
  }
};

/// The rows of one part that are here, as an objective made them for itself.
struct TrainingRows {
  virtual ~TrainingRows() = default;
  // The loss of an update is the sum of its parts' scaled losses over that of
  // their weights. Where the loss of a part is a mean over its rows, both are
  // the share of the rows that is here, 1 of all; where it is a sum of
  // predictions, the weight is their number and the scale 1.
  double weight = 1, scale = 1;
  // The cut that the model is given with its piece of a sequence; it has no
  // ranks where the rows are whole.
  nn::SequenceCut cut;
  int64_t tokens = 0;  // learned from: read with a label, or predicted
  int64_t bytes = 0;   // of text that predicted tokens stand for
};

/// The loss of one part: a scalar with its graph, in nats.
struct PartLoss {
  torch::Tensor loss;
  int64_t right = 0;  // correct predictions, where they are counted
};

/// Sums over all parts of an update and over all ranks.
struct UpdateTotals {
  double nats = 0;    // sum of the parts' scaled losses
  double weight = 0;  // at least 1
  double right = 0, bytes = 0;
};

/// One thread at a time. Must not outlive the plan it was made for.
class Objective {
 public:
  virtual ~Objective() = default;

  /// The rows of a part that are here, a pure function of it. part.count is 1
  /// or more; null where the last batch of an epoch is so short that none is
  /// here.
  virtual std::unique_ptr<TrainingRows> RowsOf(const Part& part) = 0;

  /// The loss of these rows, a pure function of weights and rows (torch's
  /// generator, which dropout draws from, is seeded by the caller). rows: from
  /// RowsOf. Computed on the model's device; float32, also under autocast.
  virtual PartLoss Loss(nn::ModelImpl& model, const TrainingRows& rows) = 0;

  /// Fills in the figures of an update besides loss and tokens, already set.
  virtual void Describe(const UpdateTotals& totals,
                        StepFigures& figures) const = 0;

  /// Fills in the figures of held-out data, in eval mode, without gradients,
  /// and in the weights' own type, so that they are those of the model in the
  /// files. The model's mode is restored. Sums in double, in a fixed order.
  /// sequence: those that share the tokens of every row, all of which call
  /// this; null: rows are whole.
  virtual void EvaluateHeldOut(nn::ModelImpl& model,
                               const RankedSequence* sequence,
                               StepFigures& figures) = 0;

  /// An example of the model's present output, for people. Leaves torch's
  /// generator alone.
  virtual std::string Sample(nn::ModelImpl& model) = 0;
};

/// The objective of the plan's task.
std::unique_ptr<Objective> MakeObjective(const RunPlan& plan);

/// One for each kind of data, which `plan` holds.
std::unique_ptr<Objective> MakeTextObjective(const RunPlan& plan);
std::unique_ptr<Objective> MakeGeneratedObjective(const RunPlan& plan);
std::unique_ptr<Objective> MakeLabelObjective(const RunPlan& plan);
std::unique_ptr<Objective> MakeTargetObjective(const RunPlan& plan);
std::unique_ptr<Objective> MakeImageObjective(const RunPlan& plan);
std::unique_ptr<Objective> MakeSpeechObjective(const RunPlan& plan);

/// Adds the gradient of update `step` to the parameters: of the mean loss over
/// everything that all rows of its options.accumulate parts predict, on all
/// ranks, each of which takes its share of every part's rows. exchange: adds
/// the gradients of the ranks up; null: they stay apart. Losses run under
/// options.precision, their backward passes in the types chosen there;
/// gradients have the parameters' type. Fills in loss, tokens (those of this
/// update alone) and the objective's own figures.
void AddGradient(Objective& objective, nn::ModelImpl& model,
                 const TrainOptions& options, int64_t step,
                 const RunRanks& ranks, GradientExchange* exchange,
                 StepFigures& figures);

/// The same of a run by itself.
inline void AddGradient(Objective& objective, nn::ModelImpl& model,
                        const TrainOptions& options, int64_t step,
                        StepFigures& figures) {
  const auto alone = OneRank();
  AddGradient(objective, model, options, step, {*alone}, nullptr, figures);
}

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
