// The loop over the parts of an update, the same for every objective.
#include <algorithm>
#include <array>
#include <vector>

#include "torch_nn/layers/feed_forward_moe.h"
#include "train/objectives/autocast.h"
#include "train/objectives/objective.h"

namespace tarn::train {
namespace {

// The rows of this rank, a part each; null where it has none of a part.
std::vector<std::unique_ptr<TrainingRows>> RowsHere(Objective& objective,
                                                    const TrainOptions& options,
                                                    int64_t step,
                                                    const RunRanks& ranks) {
  std::vector<std::unique_ptr<TrainingRows>> parts;
  const RowShare share = ranks.RowsOf(options.batch);
  for (int64_t i = 0; i < options.accumulate; ++i) {
    const Part part = {step,
                       (step - 1) * options.accumulate + i,
                       i * options.batch,
                       options.batch,
                       share.begin,
                       share.count,
                       ranks.sequence};
    parts.push_back(share.count > 0 ? objective.RowsOf(part) : nullptr);
  }
  return parts;
}

// The loss of a rank without rows, a 0 that reaches a parameter: the others'
// gradients reach the rank all the same.
torch::Tensor NoLoss(nn::ModelImpl& model) {
  return model.parameters().front().flatten().slice(0, 0, 1).sum() * 0.0;
}

}  // namespace

void AddGradient(Objective& objective, nn::ModelImpl& model,
                 const TrainOptions& options, int64_t step,
                 const RunRanks& ranks, GradientExchange* exchange,
                 StepFigures& figures) {
  // All rows first: parts may predict different numbers of tokens, and each
  // adds its share of the mean over all of them. Rows are ids or frames, small
  // compared with the activations of one part.
  const auto parts = RowsHere(objective, options, step, ranks);
  std::array<double, 3> here = {};  // weight, bytes, tokens
  for (const auto& rows : parts) {
    if (rows == nullptr) continue;
    here[0] += rows->weight;
    here[1] += static_cast<double>(rows->bytes);
    here[2] += static_cast<double>(rows->tokens);
  }
  ranks.all.Sum(here);
  UpdateTotals totals;
  totals.weight = std::max(here[0], 1.0);
  totals.bytes = here[1];
  figures.tokens += static_cast<int64_t>(here[2]);
  std::array<double, 2> told = {};  // nats, right
  for (const auto& rows : parts) {
    const bool last = &rows == &parts.back();
    if (rows == nullptr && !(last && exchange != nullptr)) continue;
    torch::Tensor loss, added;
    PartLoss part;
    if (rows != nullptr) {
      const Autocast narrow(model.device().type(), options.precision);
      part = objective.Loss(model, *rows);
      loss = rows->scale == 1 ? part.loss : part.loss * rows->scale;
      // What layers add of their own counts like a mean over the rows.
      added = nn::TakeLosses(model);
      if (added.defined()) added = added * rows->weight;
    } else {
      loss = NoLoss(model);
    }
    torch::Tensor mean =
        (added.defined() ? loss + added : loss) / totals.weight;
    if (exchange != nullptr) mean = mean * exchange->scale();
    if (last && exchange != nullptr) {
      ranks.all.AddSeconds(exchange->LastBackward(mean));
    } else {
      mean.backward();
    }
    // Fetched last: a device need not wait between the two passes.
    told[0] += loss.item<double>();
    told[1] += static_cast<double>(part.right);
  }
  ranks.all.Sum(told);
  totals.nats = told[0];
  totals.right = told[1];
  figures.loss = totals.nats / totals.weight;
  objective.Describe(totals, figures);
}

}  // namespace tarn::train
