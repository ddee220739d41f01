// Generated rows: labelled places are predicted from all tokens before them.
#include "core/error.h"
#include "train/objectives/evaluate.h"
#include "train/tasks/generated_data.h"
#include "train/objectives/objective.h"

namespace tarn::train {
namespace {

// The rows of a forward pass. inputs, targets: [rows, seq_len] int64.
struct Asked final : TrainingRows {
  torch::Tensor inputs, targets;
  int64_t count = 0;  // labelled places
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
      rows->cut = part.Cut(data_.seq_len);
      rows->inputs = rows->cut.Piece(rows->inputs);
      rows->targets = rows->cut.Piece(rows->targets).contiguous();
      rows->count = rows->targets.ne(kIgnored).sum().item<int64_t>();
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

  void EvaluateHeldOut(nn::ModelImpl& model, StepFigures& figures) override {
    const EvalMode eval(model);
    double nats = 0;
    int64_t right = 0, count = 0;
    for (int64_t first = 0; first < data_.held_out; first += options_.batch) {
      const Asked asked =
          HeldOut(first, std::min(options_.batch, data_.held_out - first));
      const PartLoss told = Tell(model, asked);
      nats += told.loss.item<double>();
      right += told.right;
      count += asked.count;
    }
    figures.val_loss = nats / static_cast<double>(count);
    figures.val_accuracy =
        static_cast<double>(right) / static_cast<double>(count);
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
