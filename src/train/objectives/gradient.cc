// The loop over the parts of an update, the same for every objective.
#include <algorithm>
#include <vector>

#include "train/objectives/autocast.h"
#include "train/objectives/objective.h"

namespace tarn::train {

void AddGradient(Objective& objective, nn::ModelImpl& model,
                 const TrainOptions& options, int64_t step,
                 StepFigures& figures) {
  // All rows first: parts may predict different numbers of tokens, and each
  // adds its share of the mean over all of them. Rows are ids or frames, small
  // beside the activations of one part.
  std::vector<std::unique_ptr<TrainingRows>> parts;
  UpdateTotals totals;
  for (int64_t i = 0; i < options.accumulate; ++i) {
    parts.push_back(objective.RowsOf({step, (step - 1) * options.accumulate + i,
                                      i * options.batch, options.batch}));
    totals.weight += parts.back()->weight;
    totals.bytes += parts.back()->bytes;
    figures.tokens += parts.back()->tokens;
  }
  totals.weight = std::max<int64_t>(totals.weight, 1);
  const auto weight = static_cast<double>(totals.weight);
  for (const auto& rows : parts) {
    const PartLoss part = [&] {
      const Autocast narrow(model.device().type(), options.precision);
      return objective.Loss(model, *rows);
    }();
    (part.loss / weight).backward();
    // The loss is fetched last: a device need not wait between the passes.
    totals.nats += part.loss.item<double>();
    totals.right += part.right;
  }
  figures.loss = totals.nats / weight;
  objective.Describe(totals, figures);
}

}  // namespace tarn::train
