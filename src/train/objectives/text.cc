// Text: every token from those before it.
#include <numbers>

#include "train/objectives/evaluate.h"
#include "train/objectives/objective.h"

namespace tarn::train {
namespace {

constexpr int64_t kSampleTokens = 160;

class TextObjective final : public Objective {
 public:
  explicit TextObjective(const RunPlan& plan)
      : options_(plan.state.options),
        corpus_(*DataOf<TextData>(*plan.data).corpus) {}

  void Learn(nn::ModelImpl& model, int64_t step,
             StepFigures& figures) override {
    // A long update reads the same number of tokens as one row, so that states
    // far beyond seq_len tokens are learned too.
    const bool is_long =
        options_.long_every > 0 && step % options_.long_every == 0;
    const int64_t seq_len =
        is_long ? options_.batch * options_.seq_len : options_.seq_len;
    const int64_t row_count = is_long ? 1 : options_.batch;
    // loss: sum over parts of the mean over their tokens, nats.
    double loss = 0;
    int64_t bytes = 0;
    for (int64_t part = 0; part < options_.accumulate; ++part) {
      std::vector<Window> windows;
      // Rows are numbered through the whole update: 4 x 2 rows are the same
      // eight windows as 8 x 1.
      for (int64_t row = 0; row < row_count; ++row) {
        windows.push_back(corpus_.TrainingWindow(
            options_.seed, step, part * options_.batch + row, seq_len));
      }
      const Rows rows = MakeRows(windows, seq_len);
      // logits: [batch, seq_len, vocab_size]
      const torch::Tensor logits = LogitsOf(model, rows.inputs);
      const torch::Tensor part_loss = torch::nn::functional::cross_entropy(
          logits.flatten(0, 1), rows.targets.flatten());
      loss += part_loss.item<double>();
      bytes += rows.target_bytes;
      (part_loss / static_cast<double>(options_.accumulate)).backward();
    }
    const double tokens =
        static_cast<double>(options_.batch * options_.seq_len);
    figures.bits_per_byte =
        loss * tokens / (static_cast<double>(bytes) * std::numbers::ln2);
    figures.loss = loss / static_cast<double>(options_.accumulate);
    figures.tokens = options_.batch * options_.accumulate * options_.seq_len;
  }

  void LookAtHeldOut(nn::ModelImpl& model, StepFigures& figures) override {
    const HeldOutLoss loss = Evaluate(model, corpus_, options_.seq_len);
    figures.val_loss = loss.nats_per_token();
    figures.val_bits_per_byte = loss.bits_per_byte();
  }

  std::string Sample(nn::ModelImpl& model) override {
    return SampleText(model, corpus_, options_.seq_len, kSampleTokens,
                      options_.seed);
  }

 private:
  const TrainOptions& options_;
  const Corpus& corpus_;
};

}  // namespace

std::unique_ptr<Objective> MakeTextObjective(const RunPlan& plan) {
  return std::make_unique<TextObjective>(plan);
}

std::unique_ptr<Objective> MakeObjective(const RunPlan& plan) {
  switch (plan.state.options.model.task) {
    case Task::kDerived:
    case Task::kLm:
      return plan.state.options.generator.kind == GeneratorKind::kNone
                 ? MakeTextObjective(plan)
                 : MakeGeneratedObjective(plan);
    case Task::kClassify:
      return MakeLabelObjective(plan);
    case Task::kSeq2seq:
      return MakeTargetObjective(plan);
    case Task::kImage:
      return MakeImageObjective(plan);
    case Task::kCtc:
      return MakeSpeechObjective(plan);
  }
  return nullptr;
}

}  // namespace tarn::train
