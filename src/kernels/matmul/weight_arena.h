// The memory of a model's weights: one place that grows as matrices are packed.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn {

/// Weights of many matrices in the order in which they are packed, which is the
/// order in which a step reads them: small matrices then share huge pages. It
/// grows by blocks, so that no size has to be known before; a block's unused
/// end is never touched and takes no memory from the system. One thread takes;
/// the matrices keep the arena alive.
class WeightArena {
 public:
  WeightArena() = default;
  ~WeightArena();
  WeightArena(const WeightArena&) = delete;
  WeightArena& operator=(const WeightArena&) = delete;

  /// `bytes` bytes at a multiple of 64, which stay where they are. They are not
  /// cleared, so that the pages are first touched by the worker that fills
  /// them. Throws std::bad_alloc, also for bytes < 0.
  uint8_t* Take(int64_t bytes);
  /// Bytes taken so far, each rounded up to 64.
  int64_t bytes() const { return bytes_; }

 private:
  struct Block {
    uint8_t* data;
    int64_t size, used;
    bool huge;
  };
  void AddBlock(int64_t least);

  std::vector<Block> blocks_;
  int64_t bytes_ = 0;
};

}  // namespace tarn
