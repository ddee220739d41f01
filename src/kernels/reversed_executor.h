// An executor for tests: runs tasks last to first and claims several workers,
// to provoke whatever depends on the split.
#pragma once

#include <cstdint>

#include "core/executor.h"

namespace tarn::testing {

class ReversedExecutor final : public Executor {
 public:
  int width() const override { return 5; }
  void ParallelFor(int64_t tasks, TaskRef f) override {
    for (int64_t task = tasks; task-- > 0;) f(task, static_cast<int>(task % 5));
  }
};

}  // namespace tarn::testing
