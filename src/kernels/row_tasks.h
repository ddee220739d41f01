// How passes over the rows of a matrix are split: by the number of rows alone,
// so that sums over rows have the same bits for any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tarn {

/// out[0, width) = the sum of `count` rows, `stride` floats apart, in order.
inline void AddUpTasks(int64_t count, const float* partial, int64_t stride,
                       int64_t width, float* out) {
  std::fill(out, out + width, 0.0f);
  for (int64_t task = 0; task < count; ++task) {
    const float* row = partial + task * stride;
    for (int64_t i = 0; i < width; ++i) out[i] += row[i];
  }
}

/// Entries of a task: some microseconds, below which waking a worker costs
/// more.
constexpr int64_t kEntriesOfTask = 1 << 14;

/// Tasks of whole rows, kEntriesOfTask entries or more, at most `most` of them,
/// for passes whose tasks have sums over rows. No tasks where rows are empty.
class WideRowTasks {
 public:
  WideRowTasks(int64_t rows, int64_t width, int64_t most)
      : rows_(width == 0 ? 0 : rows),
        share_(std::max((kEntriesOfTask - 1) / std::max<int64_t>(width, 1) + 1,
                        (rows_ - 1) / most + 1)) {}

  int64_t count() const { return (rows_ + share_ - 1) / share_; }
  int64_t begin(int64_t task) const { return task * share_; }
  int64_t end(int64_t task) const {
    return std::min(rows_, (task + 1) * share_);
  }

 private:
  int64_t rows_, share_;
};

/// Tasks of at least 64 rows, at most 256 of them.
class RowTasks {
 public:
  explicit RowTasks(int64_t rows)
      : RowTasks(rows, std::max<int64_t>(64, (rows + 255) / 256)) {}

  /// Tasks for chains of products, which take longer and should end together:
  /// whole tiles of 6 rows, about 36 rows each, the same number for 2, 4 or 8
  /// workers, and none much shorter than the others.
  static RowTasks OfProducts(int64_t rows) {
    constexpr int64_t kTile = 6, kShare = 8;
    const int64_t tiles = Up(rows, kTile);
    int64_t count = std::min<int64_t>(256, Up(tiles, 6));
    if (count > kShare) count = Up(count, kShare) * kShare;
    return RowTasks(rows, kTile, tiles, count);
  }

  int64_t count() const { return count_; }
  int64_t begin(int64_t task) const {
    return std::min(rows_, units_ * task / count_ * unit_);
  }
  int64_t end(int64_t task) const { return begin(task + 1); }
  /// The most rows of one task.
  int64_t most_rows() const {
    return count_ == 0 ? 0 : std::min(rows_, Up(units_, count_) * unit_);
  }

  /// out[0, width) = the sum of the tasks' rows, `stride` floats apart, in task
  /// order.
  void AddUp(const float* partial, int64_t stride, int64_t width,
             float* out) const {
    AddUpTasks(count(), partial, stride, width, out);
  }

 private:
  // Tasks of `unit` rows; the last one takes the rest.
  RowTasks(int64_t rows, int64_t unit)
      : RowTasks(rows, unit, Up(rows, unit), Up(rows, unit)) {}
  // `units` units divided evenly among the tasks.
  RowTasks(int64_t rows, int64_t unit, int64_t units, int64_t count)
      : rows_(rows), unit_(unit), units_(units), count_(count) {}

  static int64_t Up(int64_t n, int64_t d) { return (n + d - 1) / d; }

  int64_t rows_, unit_, units_, count_;
};

}  // namespace tarn
