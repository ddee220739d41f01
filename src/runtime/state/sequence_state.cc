#include "runtime/state/sequence_state.h"

#include <algorithm>
#include <utility>

#include "runtime/state/float_runs.h"

namespace tarn {
namespace {

constexpr int64_t kFirstCapacity = 64;

}  // namespace

SequenceState::SequenceState(std::shared_ptr<const StateLayout> layout)
    : layout_(std::move(layout)),
      block_(layout_->fixed_floats),
      logits_(layout_->outputs) {
  FillInitial();
}

// What does not begin with 0, into a block that is zero, padding included.
void SequenceState::FillInitial() {
  for (const auto& layer : layout_->layers) {
    for (const StatePlace& place : layer) {
      if (place.tensor.grows || place.tensor.initial == 0.0f) continue;
      std::fill_n(block_.data() + place.offset, place.width,
                  place.tensor.initial);
    }
  }
}

void SequenceState::Reserve(int64_t tokens) {
  if (!layout_->grows() || tokens <= capacity_) return;
  SequenceState larger(layout_);
  larger.capacity_ = std::max({tokens, 2 * capacity_, kFirstCapacity});
  larger.cache_ = AlignedBuffer<float>(larger.capacity_ * layout_->token_floats);
  larger.CopyCache(*this);
  std::swap(cache_, larger.cache_);
  capacity_ = larger.capacity_;
}

void SequenceState::CopyCache(const SequenceState& other) {
  for (size_t i = 0; i < layout_->layers.size(); ++i) {
    for (size_t t = 0; t < layout_->layers[i].size(); ++t) {
      const StatePlace& place = layout_->layers[i][t];
      if (!place.tensor.grows) continue;
      const int64_t layer = static_cast<int64_t>(i);
      const int64_t tensor = static_cast<int64_t>(t);
      for (int64_t row = 0; row < place.rows; ++row) {
        CopyFloats(other.Row(layer, tensor, row), other.position * place.width,
                   Row(layer, tensor, row));
      }
    }
  }
}

void SequenceState::CopyFrom(const SequenceState& other) {
  if (this == &other) return;
  if (other.position > capacity_ && layout_->grows()) {
    // Before anything is copied: what this state held is not wanted.
    AlignedBuffer<float> cache(other.cache_.size());
    cache_ = std::move(cache);
    capacity_ = other.capacity_;
  }
  CopyCache(other);
  CopyFloats(other.block_.data(), other.block_.size(), block_.data());
  memory = other.memory;
  position = other.position;
  has_logits = other.has_logits;
  if (has_logits) CopyFloats(other.logits(), layout_->outputs, logits());
}

SequenceState SequenceState::Clone() const {
  SequenceState copy(layout_);
  copy.cache_ = AlignedBuffer<float>(cache_.size());
  copy.capacity_ = capacity_;
  copy.CopyFrom(*this);
  return copy;
}

void SequenceState::Reset() {
  position = 0;
  has_logits = false;
  std::fill_n(block_.data(), block_.size(), 0.0f);
  FillInitial();
}

int64_t SequenceState::bytes() const {
  return layout_->FixedBytes() + capacity_ * layout_->BytesPerToken();
}

bool SequenceState::SameBits(const SequenceState& other) const {
  if (!(*layout_ == *other.layout_) || position != other.position ||
      has_logits != other.has_logits ||
      !CrossMemory::SameBits(memory.get(), other.memory.get())) {
    return false;
  }
  // Padding is zero throughout.
  bool same = SameFloats(block_.data(), other.block_.data(), block_.size());
  for (size_t i = 0; i < layout_->layers.size(); ++i) {
    for (size_t t = 0; t < layout_->layers[i].size(); ++t) {
      const StatePlace& place = layout_->layers[i][t];
      const int64_t layer = static_cast<int64_t>(i);
      const int64_t tensor = static_cast<int64_t>(t);
      for (int64_t row = 0; place.tensor.grows && row < place.rows; ++row) {
        same = same && SameFloats(Row(layer, tensor, row),
                                  other.Row(layer, tensor, row),
                                  position * place.width);
      }
    }
  }
  return same &&
         (!has_logits || SameFloats(logits(), other.logits(), layout_->outputs));
}

uint64_t SequenceState::Hash() const {
  uint64_t hash =
      MixHash(MixHash(0, static_cast<uint64_t>(position)), has_logits);
  if (memory != nullptr) hash = MixHash(hash, memory->Hash());
  ForEachRun([&hash](const StatePlace&, int64_t, const float* p,
                     int64_t count) { hash = MixFloats(hash, p, count); });
  if (has_logits) hash = MixFloats(hash, logits(), layout_->outputs);
  return hash;
}

}  // namespace tarn
