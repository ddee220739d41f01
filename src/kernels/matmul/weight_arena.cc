#include "kernels/matmul/weight_arena.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdint>
#include <new>

namespace tarn {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;
// A new block is a quarter of all before it, within these bounds: a tiny model
// asks for little, and a large one seldom.
constexpr int64_t kFirstBlock = int64_t{64} << 10;
constexpr int64_t kLargestBlock = int64_t{64} << 20;

int64_t RoundUp(int64_t bytes, int64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

std::align_val_t AlignmentOf(bool huge) {
  return std::align_val_t{static_cast<size_t>(huge ? kHugePage : kLineBytes)};
}

}  // namespace

WeightArena::~WeightArena() {
  for (const Block& block : blocks_) {
    ::operator delete(block.data, AlignmentOf(block.huge));
  }
}

void WeightArena::AddBlock(int64_t least) {
  const int64_t wanted =
      std::max(least, std::clamp(bytes_ / 4, kFirstBlock, kLargestBlock));
  Block block = {nullptr, wanted, 0, wanted >= 2 * kHugePage};
  // Only whole pages are taken: a part of one cannot be huge.
  if (block.huge) block.size = RoundUp(wanted, kHugePage);
  blocks_.reserve(blocks_.size() + 1);
  block.data = static_cast<uint8_t*>(
      ::operator new(static_cast<size_t>(block.size), AlignmentOf(block.huge)));
#if defined(__linux__)
  // This is only a request: if it is refused, the weights work but are slower.
  if (block.huge) {
    madvise(block.data, static_cast<size_t>(block.size), MADV_HUGEPAGE);
  }
#endif
  blocks_.push_back(block);
}

uint8_t* WeightArena::Take(int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX / 2) throw std::bad_alloc();
  const int64_t rounded = RoundUp(bytes, kLineBytes);
  if (blocks_.empty() || rounded > blocks_.back().size - blocks_.back().used) {
    AddBlock(rounded);
  }
  Block& block = blocks_.back();
  uint8_t* taken = block.data + block.used;
  block.used += rounded;
  bytes_ += rounded;
  return taken;
}

}  // namespace tarn
