// The learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tarn::train {

enum class Schedule { kConstant, kCosine, kStep, kPlateau };

struct ScheduleOptions {
  Schedule schedule = Schedule::kCosine;
  double lr = 2e-3;               // the highest rate
  int64_t warmup = 100;           // linear warm-up steps
  int64_t steps = 1000;           // cosine: where the fall ends
  double lr_min = 0;              // cosine, plateau: the lowest rate
  std::vector<int64_t> decay_at;  // step: updates after which the rate falls
  double decay_factor = 0.1;      // step, plateau: by this factor each time
  int64_t decay_patience = 10;    // plateau: evaluations on held-out data
};

/// What evaluations on held-out data decide: the rate of --schedule plateau and
/// the end of a run with --patience. Part of a checkpoint.
struct Plateau {
  int64_t evaluations = 0;  // since the best one, or since the rate fell
  int64_t drops = 0;        // times the rate fell
  // The best among evaluations that count: the one at the end of a run does
  // not, since a longer run would not have had it.
  std::optional<double> best;
  int64_t since_best = 0;  // evaluations since then, whatever the rate did
};

/// Counts an evaluation on held-out data. better: than Plateau::best, which the
/// caller keeps. The rate falls with the `decay_patience`-th in a row that is
/// not.
void CountEvaluation(Plateau& plateau, bool better, int64_t decay_patience);

/// Whether a run ends here: `patience` evaluations in a row were not better
/// than the best. A patience of 0 never ends a run.
bool IsOutOfPatience(const Plateau& plateau, int64_t patience);

/// Rate of update `step` in [1, steps]. Warm-up: lr * step / warmup. Then
/// constant; or lr_min + (lr - lr_min) (1 + cos(pi x)) / 2 with x from 0 at the
/// end of warm-up to 1 at the last step; or lr * decay_factor^(number of
/// entries of decay_at below `step`); or max(lr_min, lr * decay_factor^drops).
/// A pure function; never throws.
double LearningRate(const ScheduleOptions& options, int64_t step,
                    int64_t drops = 0);

}  // namespace tarn::train
