// Torch's intra-op pool as a kernel's executor: an operator never adds a second
// pool to torch's.
#pragma once

#include <cstdint>
#include <limits>

#include "core/executor.h"

namespace tarn::ops {

/// An executor as wide as torch.get_num_threads(), or of one worker inside a
/// parallel region of torch, where tasks run inline. It belongs to the calling
/// thread: make one a call, do not share it.
class TorchExecutor final : public Executor {
 public:
  TorchExecutor();
  /// At most `most` workers, for calls with little to do; most >= 1.
  explicit TorchExecutor(int most);
  int width() const override { return width_; }
  void ParallelFor(int64_t tasks, TaskRef f) override;

 private:
  int width_;
};

/// Workers for a pass over so many entries: one below 32,768, a few
/// microseconds of one thread, where waking another costs more than it saves.
inline int WorkersFor(int64_t entries) {
  constexpr int64_t kLeastEntries = 1 << 15;
  return entries < kLeastEntries ? 1 : std::numeric_limits<int>::max();
}

}  // namespace tarn::ops
