// Generated rows: labelled places are predicted from all tokens before them.
#include "core/error.h"
#include "train/objectives/evaluate.h"
#include "train/objectives/objective.h"
#include "train/tasks/generated_data.h"

namespace tarn::train {
namespace {

// The rows of a forward pass. inputs, targets: [rows, seq_len] int64.
struct Asked final : TrainingRows {
  torch::Tensor inputs, targets;
  int64_t count = 0;  // labelled places

  // Leaves what is here of a sequence that is cut over ranks.
  void TakePiece(const nn::SequenceCut& here) {
    cut = here;
    inputs = cut.Piece(inputs);
    targets = cut.Piece(targets).contiguous();
    count = targets.ne(kIgnored).sum().item<int64_t>();
  }
};

// Sums over labelled places: nats, and how often the likeliest token is right.
PartLoss Tell(nn::ModelImpl& model, const Asked& asked) {
  // logits: [labelled, vocab_size], at labelled places only. These are found
  // before the model runs: later their number would be waited for.
  const torch::Device device = model.device();
  const torch::Tensor labelled =
      asked.targets.flatten().ne(kIgnored).nonzero().squeeze(1);
  const torch::Tensor targets =
      asked.targets.flatten().index_select(0, labelled).to(device);
  const torch::Tensor logits = LogitsOf(model, asked.inputs, asked.cut)
                                   .flatten(0, 1)
                                   .index_select(0, labelled.to(device));
  PartLoss told;
  told.loss = torch::nn::functional::cross_entropy(
      logits, targets,
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  told.right = logits.detach().argmax(-1).eq(targets).sum().item<int64_t>();
  return told;
}

class GeneratedObjective final : public Objective {
 public:
  explicit GeneratedObjective(const RunPlan& plan)
      : options_(plan.state.options),
        data_(DataOf<GeneratedData>(*plan.data)) {}

  std::unique_ptr<TrainingRows> RowsOf(const Part& part) override {
    auto rows = std::make_unique<Asked>(MakeRows(part.count, [&](int64_t row) {
      return data_.generator.TrainingRow(options_.seed, part.step,
                                         part.first + part.begin + row);
    }));
    if (part.sequence != nullptr) {
      rows->TakePiece(part.Cut(data_.seq_len));
    }
    rows->tokens = rows->count;
    rows->weight = static_cast<double>(rows->count);
    return rows;
  }

  PartLoss Loss(nn::ModelImpl& model, const TrainingRows& rows) override {
    return Tell(model, static_cast<const Asked&>(rows));
  }

  void Describe(const UpdateTotals& totals,
                StepFigures& figures) const override {
    figures.accuracy = totals.right / totals.weight;
  }

  void EvaluateHeldOut(nn::ModelImpl& model, const RankedSequence* sequence,
                       StepFigures& figures) override {
    const EvalMode eval(model);
    double sums[] = {0, 0, 0};  // nats, right, count
    for (int64_t first = 0; first < data_.held_out; first += options_.batch) {
      Asked asked =
          HeldOut(first, std::min(options_.batch, data_.held_out - first));
      if (sequence != nullptr) asked.TakePiece({sequence, data_.seq_len});
      const PartLoss told = Tell(model, asked);
      sums[0] += told.loss.item<double>();
      sums[1] += static_cast<double>(told.right);
      sums[2] += static_cast<double>(asked.count);
    }
    if (sequence != nullptr) sequence->Sum(sums);
    figures.val_loss = sums[0] / sums[2];
    figures.val_accuracy = sums[1] / sums[2];
  }

  std::string Sample(nn::ModelImpl& model) override {
    const EvalMode eval(model);
    const Asked asked = HeldOut(0, 1);
    // [seq_len]
    const torch::Tensor said =
        LogitsOf(model, asked.inputs).argmax(-1).flatten().to(torch::kCPU);
    const torch::Tensor targets = asked.targets.flatten();
    std::string wanted = "wanted", got = "got   ";
    for (int64_t t = 0; t < targets.size(0); ++t) {
      const auto target = targets[t].item<int64_t>();
      if (target == kIgnored) continue;
      wanted += StrCat(" ", target);
      got += StrCat(" ", said[t].item<int64_t>());
    }
    return wanted + "\n" + got;
  }

 private:
  Asked HeldOut(int64_t first, int64_t rows) const {
    return MakeRows(rows, [&](int64_t row) {
      return data_.generator.HeldOutRow(options_.seed, first + row);
    });
  }

  template <typename MakeRow>
  Asked MakeRows(int64_t rows, const MakeRow& make) const {
    Asked asked;
    asked.inputs = torch::empty({rows, data_.seq_len}, torch::kInt64);
    asked.targets = torch::empty({rows, data_.seq_len}, torch::kInt64);
    auto* input = asked.inputs.data_ptr<int64_t>();
    auto* target = asked.targets.data_ptr<int64_t>();
    for (int64_t r = 0; r < rows; ++r) {
      const GeneratedRow row = make(r);
      input = std::copy(row.inputs.begin(), row.inputs.end(), input);
      for (const int32_t label : row.targets) {
        *target++ = label;
        asked.count += label != kUnlabelled;
      }
    }
    return asked;
  }

  static_assert(kUnlabelled == kIgnored);
  const TrainOptions& options_;
  const GeneratedData& data_;
};

}  // namespace

std::unique_ptr<Objective> MakeGeneratedObjective(const RunPlan& plan) {
  return std::make_unique<GeneratedObjective>(plan);
}

}  // namespace tarn::train
