// Labels and targets: examples of two fields.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/pairs/batches.h"
#include "data/pairs/edit_distance.h"
#include "torch_nn/models/decode.h"
#include "torch_nn/models/seq2seq.h"
#include "train/objectives/evaluate.h"
#include "train/objectives/example_rows.h"
#include "train/objectives/objective.h"
#include "train/run/metrics.h"

namespace tarn::train {
namespace {

// Held-out rows of a forward pass: no gradient is kept, so more than in
// training.
constexpr int64_t kPairsAtOnce = 64;

// Sum over everything predicted, nats. logits [B, C] or [B, U, C].
torch::Tensor SumLoss(const torch::Tensor& logits,
                      const torch::Tensor& targets) {
  return torch::nn::functional::cross_entropy(
      logits.reshape({-1, logits.size(-1)}),
      targets.flatten().to(logits.device()),
      torch::nn::functional::CrossEntropyFuncOptions()
          .ignore_index(kIgnored)
          .reduction(torch::kSum));
}

int64_t CountRight(const torch::Tensor& logits, const torch::Tensor& labels) {
  return logits.argmax(-1).to(torch::kCPU).eq(labels).sum().item<int64_t>();
}

// Greedy decodes without a recurrent form: the whole target is read again for
// every token, O(max_tokens^2).
std::vector<std::vector<int32_t>> GreedyByLogits(nn::ModelImpl& model,
                                                 nn::Batch batch,
                                                 int32_t newline,
                                                 int64_t max_tokens) {
  const int64_t count = batch.tokens.size(0);
  std::vector<std::vector<int32_t>> decoded(count);
  std::vector<bool> ended(count);
  batch.target_in = torch::full({count, 1}, newline, torch::kInt64);
  for (int64_t u = 0, running = count; u < max_tokens && running > 0; ++u) {
    // [B]: the token that follows the tokens of each row so far.
    const torch::Tensor next =
        LogitsOf(model, batch).select(1, u).argmax(-1).to(torch::kCPU);
    for (int64_t r = 0; r < count; ++r) {
      const auto token = static_cast<int32_t>(next[r].item<int64_t>());
      if (!ended[r] && token == newline) ended[r] = true, --running;
      if (!ended[r]) decoded[r].push_back(token);
    }
    batch.target_in = torch::cat({batch.target_in, next.unsqueeze(1)}, 1);
  }
  return decoded;
}

struct PairRows final : TrainingRows {
  ExampleRows rows;
};

// What both tasks share: batches, loss, figures of training.
class PairObjective : public Objective {
 public:
  PairObjective(const RunPlan& plan, int32_t newline)
      : options_(plan.state.options),
        data_(DataOf<PairData>(*plan.data)),
        newline_(newline),
        order_(*data_.training, options_.batch, options_.seed) {}

  std::unique_ptr<TrainingRows> RowsOf(const Part& part) override {
    auto rows = std::make_unique<PairRows>();
    const std::vector<int64_t> whole = order_.Batch(part.pass);
    const std::vector<int64_t> here(
        whole.begin() + std::min(part.begin, std::ssize(whole)),
        whole.begin() + std::min(part.begin + part.count, std::ssize(whole)));
    if (here.empty()) return nullptr;
    rows->rows = MakeExampleRows(*data_.training, here, newline_);
    rows->weight = static_cast<double>(rows->rows.predicted);
    rows->tokens = rows->rows.tokens;
    return rows;
  }

  PartLoss Loss(nn::ModelImpl& model, const TrainingRows& rows) override {
    const ExampleRows& examples = static_cast<const PairRows&>(rows).rows;
    const torch::Tensor logits = LogitsOf(model, examples.batch);
    PartLoss part{SumLoss(logits, examples.targets)};
    if (newline_ < 0) {
      part.right = CountRight(logits.detach(), examples.targets);
    }
    return part;
  }

  void Describe(const UpdateTotals& totals,
                StepFigures& figures) const override {
    if (newline_ >= 0) return;
    figures.accuracy = totals.right / totals.weight;
  }

  void EvaluateHeldOut(nn::ModelImpl& model, const RankedSequence*,
                       StepFigures& figures) override {
    const EvalMode eval(model);
    double nats = 0;
    int64_t predicted = 0, right = 0;
    for (const auto& which : ByLength(*data_.held_out, kPairsAtOnce)) {
      const ExampleRows rows =
          MakeExampleRows(*data_.held_out, which, newline_);
      const torch::Tensor logits = LogitsOf(model, rows.batch);
      nats += SumLoss(logits, rows.targets).item<double>();
      predicted += rows.predicted;
      if (newline_ < 0) right += CountRight(logits, rows.targets);
    }
    figures.val_loss = nats / static_cast<double>(predicted);
    if (newline_ < 0) {
      figures.val_accuracy =
          static_cast<double>(right) / static_cast<double>(predicted);
    }
  }

 protected:
  std::string Text(std::span<const int32_t> tokens) const {
    return data_.tokenizer.Decode({tokens.begin(), tokens.end()});
  }

  const TrainOptions& options_;
  const PairData& data_;
  int32_t newline_;  // -1: labels

 private:
  BatchOrder order_;
};

class LabelObjective final : public PairObjective {
 public:
  explicit LabelObjective(const RunPlan& plan) : PairObjective(plan, -1) {}

  std::string Sample(nn::ModelImpl& model) override {
    const EvalMode eval(model);
    const ExampleRows rows = MakeExampleRows(*data_.held_out, {0}, newline_);
    const auto label = LogitsOf(model, rows.batch).argmax(-1).item<int64_t>();
    return StrCat(Text(data_.held_out->input(0)), " -> ",
                  data_.labels->name(label), " (",
                  data_.labels->name(data_.held_out->label(0)), ")");
  }
};

class TargetObjective final : public PairObjective {
 public:
  explicit TargetObjective(const RunPlan& plan)
      : PairObjective(plan,
                      NewlineToken(DataOf<PairData>(*plan.data).tokenizer)),
        decodes_(MetricOf(options_) == Metric::kTokenErrorRate) {}

  void EvaluateHeldOut(nn::ModelImpl& model, const RankedSequence* sequence,
                       StepFigures& figures) override {
    PairObjective::EvaluateHeldOut(model, sequence, figures);
    // A loss that is not finite ends the run: there is nothing to decode.
    if (!decodes_ || !std::isfinite(*figures.val_loss)) return;
    int64_t edits = 0, tokens = 0;
    for (const auto& which : ByLength(*data_.held_out, kPairsAtOnce)) {
      const auto decoded = Decode(model, which);
      for (size_t i = 0; i < which.size(); ++i) {
        const auto target = data_.held_out->target(which[i]);
        edits += static_cast<int64_t>(EditDistance(decoded[i], target));
        tokens += std::ssize(target);
      }
    }
    figures.val_token_error_rate =
        static_cast<double>(edits) / static_cast<double>(tokens);
  }

  std::string Sample(nn::ModelImpl& model) override {
    return StrCat(Text(data_.held_out->input(0)), " -> ",
                  Text(Decode(model, {0})[0]), " (",
                  Text(data_.held_out->target(0)), ")");
  }

 private:
  // Greedy decodes of held-out inputs, without the newline that ends them, of
  // at most as many tokens as a target may have.
  std::vector<std::vector<int32_t>> Decode(nn::ModelImpl& model,
                                           const std::vector<int64_t>& which) {
    const EvalMode eval(model);
    const ExampleRows rows = MakeExampleRows(*data_.held_out, which, newline_);
    if (auto* steps = dynamic_cast<nn::Seq2SeqImpl*>(&model)) {
      try {
        return GreedyBySteps(*steps, rows.batch);
      } catch (const ArgumentError&) {
        // This kind of attention has no recurrent form.
      }
    }
    return GreedyByLogits(model, rows.batch, newline_, options_.seq_len);
  }

  std::vector<std::vector<int32_t>> GreedyBySteps(nn::Seq2SeqImpl& model,
                                                  const nn::Batch& batch) {
    nn::DecodeOptions options;
    options.max_len = options_.seq_len + 1;  // the end counts
    options.start = options.end = newline_;
    std::vector<std::vector<int32_t>> decoded;
    for (const nn::Hypothesis& found :
         nn::GreedyDecode(model, batch.tokens, batch.lengths, options)) {
      // A decode cut by the limit has as many tokens as there were steps.
      const auto count = std::min(std::ssize(found.tokens), options_.seq_len);
      decoded.emplace_back(found.tokens.begin(), found.tokens.begin() + count);
    }
    return decoded;
  }

  bool decodes_;
};

}  // namespace

std::unique_ptr<Objective> MakeLabelObjective(const RunPlan& plan) {
  return std::make_unique<LabelObjective>(plan);
}

std::unique_ptr<Objective> MakeTargetObjective(const RunPlan& plan) {
  return std::make_unique<TargetObjective>(plan);
}

}  // namespace tarn::train
