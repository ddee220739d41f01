// The learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::train {

enum class Schedule { kConstant, kCosine, kStep };

struct ScheduleOptions {
  Schedule schedule = Schedule::kCosine;
  double lr = 2e-3;               // the highest rate
  int64_t warmup = 100;           // steps over which the rate rises linearly
  int64_t steps = 1000;           // cosine: where the fall ends
  double lr_min = 0;              // cosine: the rate it falls to
  std::vector<int64_t> decay_at;  // step: updates after which the rate falls
  double decay_factor = 0.1;      // step: by this factor each time
};

/// Rate of update `step` in [1, steps]. Warm-up: lr * step / warmup. Then
/// constant; or lr_min + (lr - lr_min) (1 + cos(pi x)) / 2 with x from 0 at the
/// end of warm-up to 1 at the last step; or lr * decay_factor^(number of
/// entries of decay_at below `step`). A pure function; never throws.
double LearningRate(const ScheduleOptions& options, int64_t step);

}  // namespace tarn::train
