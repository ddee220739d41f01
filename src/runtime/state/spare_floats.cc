#include "runtime/state/spare_floats.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace tarn {
namespace {

using SpareBlock = AlignedBuffer<float>;

struct SpareStore {
  std::mutex turn;
  std::vector<SpareBlock> blocks;
  int64_t bytes = 0, limit = 0;

  // The earliest go first, into `freed`: the system takes its time for each.
  void Shrink(int64_t most, std::vector<SpareBlock>& freed) {
    size_t count = 0;
    for (; count < blocks.size() && bytes > most; ++count) {
      bytes -= blocks[count].bytes();
      freed.push_back(std::move(blocks[count]));
    }
    blocks.erase(blocks.begin(),
                 blocks.begin() + static_cast<ptrdiff_t>(count));
  }
};

// Never destroyed: the last state may end after everything else.
SpareStore& TheSpareStore() {
  static SpareStore& store = *new SpareStore;
  return store;
}

void ChangeLimit(int64_t by) {
  std::vector<SpareBlock> freed;
  SpareStore& store = TheSpareStore();
  const std::lock_guard lock(store.turn);
  store.limit += by;
  store.Shrink(store.limit, freed);
}

}  // namespace

SpareBlock SpareFloats::Take(int64_t size, SpareBlock::Contents contents) {
  SpareBlock found;
  if (size >= kLeastFloats) {
    SpareStore& store = TheSpareStore();
    const std::lock_guard lock(store.turn);
    auto& blocks = store.blocks;
    // The latest one: parts of it may still be in a cache.
    const auto at =
        std::find_if(blocks.rbegin(), blocks.rend(),
                     [&](const SpareBlock& b) { return b.size() == size; });
    if (at != blocks.rend()) {
      found = std::move(*at);
      store.bytes -= found.bytes();
      blocks.erase(std::next(at).base());
    }
  }
  if (found.size() != size) return SpareBlock(size, contents);
  if (contents == SpareBlock::kZeros) {
    std::memset(found.data(), 0, static_cast<size_t>(found.bytes()));
  }
  return found;
}

void SpareFloats::Give(SpareBlock block) noexcept {
  if (block.size() < kLeastFloats) return;
  try {
    SpareStore& store = TheSpareStore();
    const std::lock_guard lock(store.turn);
    if (block.bytes() > store.limit - store.bytes) return;
    store.blocks.reserve(store.blocks.size() + 1);
    store.bytes += block.bytes();
    store.blocks.push_back(std::move(block));
  } catch (const std::exception&) {
    // Then it is freed.
  }
}

void SpareFloats::Clear() {
  std::vector<SpareBlock> freed;
  SpareStore& store = TheSpareStore();
  const std::lock_guard lock(store.turn);
  store.Shrink(0, freed);
}

int64_t SpareFloats::bytes() {
  SpareStore& store = TheSpareStore();
  const std::lock_guard lock(store.turn);
  return store.bytes;
}

SpareFloats::Allowance::Allowance(int64_t bytes) : bytes_(bytes) {
  ChangeLimit(bytes);
}
SpareFloats::Allowance::~Allowance() { ChangeLimit(-bytes_); }

}  // namespace tarn
