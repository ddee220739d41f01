// How passes over the rows of a matrix are split: by the number of rows alone,
// so that sums over rows have the same bits for any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tarn {

/// Tasks of at least 64 rows, at most 256 of them.
class RowTasks {
 public:
  explicit RowTasks(int64_t rows)
      : rows_(rows), per_task_(std::max<int64_t>(64, (rows + 255) / 256)) {}

  int64_t count() const { return (rows_ + per_task_ - 1) / per_task_; }
  int64_t begin(int64_t task) const { return task * per_task_; }
  int64_t end(int64_t task) const {
    return std::min(rows_, begin(task) + per_task_);
  }

  /// out[0, width) = the sum of the tasks' rows, `stride` floats apart, in task
  /// order.
  void AddUp(const float* partial, int64_t stride, int64_t width,
             float* out) const {
    std::fill(out, out + width, 0.0f);
    for (int64_t task = 0; task < count(); ++task) {
      const float* row = partial + task * stride;
      for (int64_t i = 0; i < width; ++i) out[i] += row[i];
    }
  }

 private:
  int64_t rows_, per_task_;
};

}  // namespace tarn
