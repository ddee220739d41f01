#include "train/options/schedule.h"

#include <algorithm>
#include <cmath>

namespace tarn::train {

void CountEvaluation(Plateau& plateau, bool better, int64_t decay_patience) {
  plateau.since_best = better ? 0 : plateau.since_best + 1;
  plateau.evaluations = better ? 0 : plateau.evaluations + 1;
  if (plateau.evaluations < decay_patience) return;
  plateau.evaluations = 0;
  ++plateau.drops;
}

bool IsOutOfPatience(const Plateau& plateau, int64_t patience) {
  return patience > 0 && plateau.since_best >= patience;
}

double LearningRate(const ScheduleOptions& options, int64_t step,
                    int64_t drops) {
  if (step < options.warmup) {
    return options.lr * static_cast<double>(step) /
           static_cast<double>(options.warmup);
  }
  switch (options.schedule) {
    case Schedule::kConstant:
      return options.lr;
    case Schedule::kCosine: {
      const double span = static_cast<double>(
          std::max<int64_t>(options.steps - options.warmup, 1));
      const double x =
          std::min(static_cast<double>(step - options.warmup) / span, 1.0);
      return options.lr_min +
             (options.lr - options.lr_min) * (1 + std::cos(M_PI * x)) / 2;
    }
    case Schedule::kStep: {
      double rate = options.lr;
      for (int64_t at : options.decay_at) {
        if (step > at) rate *= options.decay_factor;
      }
      return rate;
    }
    case Schedule::kPlateau: {
      double rate = options.lr;
      for (int64_t i = 0; i < drops; ++i) rate *= options.decay_factor;
      return std::max(rate, options.lr_min);
    }
  }
  return options.lr;
}

}  // namespace tarn::train
