// Text: every token from those before it.
#include <numbers>

#include "train/objectives/evaluate.h"
#include "train/objectives/objective.h"

namespace tarn::train {
namespace {

constexpr int64_t kSampleTokens = 160;

struct TextRows final : TrainingRows {
  Rows rows;
};

class TextObjective final : public Objective {
 public:
  explicit TextObjective(const RunPlan& plan)
      : options_(plan.state.options),
        corpus_(*DataOf<TextData>(*plan.data).corpus) {}

  std::unique_ptr<TrainingRows> RowsOf(const Part& part) override {
    // A long update reads the same number of tokens as one row, so that states
    // far beyond seq_len tokens are learned too; a rank reads as many tokens of
    // it as it would have in rows.
    const bool is_long =
        options_.long_every > 0 && part.step % options_.long_every == 0;
    const int64_t seq_len =
        is_long ? part.count * options_.seq_len : options_.seq_len;
    std::vector<Window> windows;
    for (int64_t row = 0; row < (is_long ? 1 : part.count); ++row) {
      windows.push_back(corpus_.TrainingWindow(
          options_.seed, part.step, part.first + part.begin + row, seq_len));
    }
    auto rows = std::make_unique<TextRows>();
    rows->rows = MakeRows(windows, seq_len);
    rows->weight = rows->scale = part.share(seq_len);
    rows->tokens = part.counts_rows() ? part.count * options_.seq_len : 0;
    rows->bytes = part.counts_rows() ? rows->rows.target_bytes : 0;
    if (part.sequence != nullptr) {
      rows->cut = part.Cut(seq_len);
      TakePiece(rows->cut, rows->rows);
    }
    return rows;
  }

  // The loss is the mean over the tokens of a part: parts have equally many.
  PartLoss Loss(nn::ModelImpl& model, const TrainingRows& rows) override {
    const Rows& text = static_cast<const TextRows&>(rows).rows;
    // logits: [batch, seq_len, vocab_size]
    const torch::Tensor logits = LogitsOf(model, text.inputs, rows.cut);
    return {torch::nn::functional::cross_entropy(
        logits.flatten(0, 1), text.targets.flatten().to(logits.device()))};
  }

  void Describe(const UpdateTotals& totals,
                StepFigures& figures) const override {
    const double tokens =
        static_cast<double>(options_.batch * options_.seq_len);
    figures.bits_per_byte =
        totals.nats * tokens / (totals.bytes * std::numbers::ln2);
  }

  void EvaluateHeldOut(nn::ModelImpl& model, const RankedSequence* sequence,
                       StepFigures& figures) override {
    const HeldOutLoss loss =
        Evaluate(model, corpus_, options_.seq_len, sequence);
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
