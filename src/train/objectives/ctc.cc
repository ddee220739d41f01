// Speech: letters from frames, without a given alignment.
#include <algorithm>
#include <numeric>

#include "data/pairs/edit_distance.h"
#include "train/objectives/evaluate.h"
#include "train/objectives/objective.h"
#include "train/objectives/utterances.h"
#include "train/tasks/speech_data.h"

namespace tarn::train {
namespace {

// Held-out rows of a forward pass: no gradient is kept.
constexpr int64_t kUtterancesAtOnce = 16;

// Indices in order of length, so that little is padded.
std::vector<int64_t> OrderByLength(const std::vector<Utterance>& utterances) {
  std::vector<int64_t> order(utterances.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return utterances[a].features.size(0) < utterances[b].features.size(0);
  });
  return order;
}

struct SpeechRows final : TrainingRows {
  UtteranceRows rows;
};

class SpeechObjective final : public Objective {
 public:
  explicit SpeechObjective(const RunPlan& plan)
      : options_(plan.state.options),
        data_(DataOf<SpeechData>(*plan.data)),
        bands_(options_.model.input_dim),
        utterances_(data_.digits, data_.split, UtterancesOf(options_)),
        held_out_(utterances_.HeldOut(options_.eval_windows)),
        test_(utterances_.Test(options_.eval_windows)) {}

  std::unique_ptr<TrainingRows> RowsOf(const Part& part) override {
    std::vector<Utterance> utterances;
    for (int64_t row = 0; row < part.count; ++row) {
      utterances.push_back(
          utterances_.Training(part.step, part.first + part.begin + row));
    }
    auto rows = std::make_unique<SpeechRows>();
    rows->rows = MakeUtteranceRows(utterances, bands_);
    rows->weight = static_cast<double>(rows->rows.counted_letters);
    rows->tokens = rows->rows.frames;
    return rows;
  }

  // The loss is a sum over letters.
  PartLoss Loss(nn::ModelImpl& model, const TrainingRows& rows) override {
    const UtteranceRows& some = static_cast<const SpeechRows&>(rows).rows;
    return {CtcLoss(LogitsOf(model, some.batch), some)};
  }

  void Describe(const UpdateTotals&, StepFigures&) const override {}

  void EvaluateHeldOut(nn::ModelImpl& model, const RankedSequence*,
                       StepFigures& figures) override {
    const EvalMode eval(model);
    figures.epoch_tokens = EpochFrames();
    EvaluateSet(model, held_out_, figures.val_loss,
                figures.val_token_error_rate);
    if (test_.empty()) return;
    EvaluateSet(model, test_, figures.test_loss, figures.test_token_error_rate);
  }

  std::string Sample(nn::ModelImpl& model) override {
    const EvalMode eval(model);
    const UtteranceRows rows = MakeUtteranceRows({held_out_[0]}, bands_);
    const auto decoded =
        GreedyLetters(LogitsOf(model, rows.batch), rows.batch.lengths);
    return StrCat(LettersOf(held_out_[0].letters), " -> ",
                  LettersOf(decoded[0]));
  }

 private:
  // Frames of the training recordings, each counted once and unchanged.
  int64_t EpochFrames() const {
    const LogMelOptions mel = MelOf(data_.digits, UtterancesOf(options_));
    int64_t frames = 0;
    for (const int64_t clip : data_.split.training) {
      frames += mel.Frames(std::ssize(data_.digits.clips()[clip].samples));
    }
    return frames;
  }

  // Mean loss per letter over the utterances that CTC counts, and edits per
  // letter over all.
  void EvaluateSet(nn::ModelImpl& model,
                   const std::vector<Utterance>& utterances,
                   std::optional<double>& loss,
                   std::optional<double>& error_rate) {
    const std::vector<int64_t> order = OrderByLength(utterances);
    double nats = 0;
    int64_t edits = 0, letters = 0, counted = 0;
    for (size_t first = 0; first < order.size(); first += kUtterancesAtOnce) {
      std::vector<Utterance> some;
      for (size_t i = first;
           i < std::min(first + kUtterancesAtOnce, order.size()); ++i) {
        some.push_back(utterances[order[i]]);
      }
      const UtteranceRows rows = MakeUtteranceRows(some, bands_);
      const torch::Tensor logits = LogitsOf(model, rows.batch);
      nats += CtcLoss(logits, rows).item<double>();
      letters += rows.total_letters;
      counted += rows.counted_letters;
      const auto decoded = GreedyLetters(logits, rows.batch.lengths);
      for (size_t i = 0; i < some.size(); ++i) {
        edits +=
            static_cast<int64_t>(EditDistance(decoded[i], some[i].letters));
      }
    }
    loss = nats / static_cast<double>(std::max<int64_t>(counted, 1));
    error_rate = static_cast<double>(edits) / static_cast<double>(letters);
  }

  const TrainOptions& options_;
  const SpeechData& data_;
  int64_t bands_;
  Utterances utterances_;
  std::vector<Utterance> held_out_, test_;
};

}  // namespace

std::unique_ptr<Objective> MakeSpeechObjective(const RunPlan& plan) {
  return std::make_unique<SpeechObjective>(plan);
}

}  // namespace tarn::train
