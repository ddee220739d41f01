#include "runtime/state/cross_memory.h"

#include "runtime/state/float_runs.h"

namespace tarn {

CrossMemory::CrossMemory(int64_t layers, int64_t heads, int64_t head_floats,
                         int64_t source_len)
    : source_len_(source_len),
      heads_(heads),
      head_floats_(head_floats),
      block_(layers * heads * head_floats) {}

uint64_t CrossMemory::Hash() const {
  return MixFloats(MixHash(0, static_cast<uint64_t>(source_len_)),
                   block_.data(), block_.size());
}

bool CrossMemory::SameBits(const CrossMemory* a, const CrossMemory* b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr) return false;
  return a->source_len_ == b->source_len_ &&
         a->block_.size() == b->block_.size() &&
         SameFloats(a->block_.data(), b->block_.data(), a->block_.size());
}

}  // namespace tarn
