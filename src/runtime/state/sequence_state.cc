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

// Writes initial values that are not 0 into a block of zeros, padding included.
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
  larger.cache_ =
      AlignedBuffer<float>(larger.capacity_ * layout_->token_floats);
  larger.CopyCache(*this, position);
  std::swap(cache_, larger.cache_);
  capacity_ = larger.capacity_;
}

void SequenceState::CopyCache(const SequenceState& other, int64_t tokens) {
  ForEachRow(
      [&](const StatePlace& place, int64_t layer, int64_t tensor, int64_t row) {
        if (!place.tensor.grows) return;
        CopyFloats(other.Row(layer, tensor, row), tokens * place.width,
                   Row(layer, tensor, row));
      });
}

void SequenceState::CopyFrom(const SequenceState& other) {
  if (this == &other) return;
  if (other.position > capacity_ && layout_->grows()) {
    // Allocates before anything is copied: the old contents are not needed.
    AlignedBuffer<float> cache(other.cache_.size());
    cache_ = std::move(cache);
    capacity_ = other.capacity_;
  }
  CopyCache(other, other.position);
  CopyFloats(other.block_.data(), other.block_.size(), block_.data());
  memory = other.memory;
  position = other.position;
  has_logits = other.has_logits;
  if (has_logits) CopyFloats(other.logits(), layout_->outputs, logits());
}

void SequenceState::CopyRows(const SequenceState& other, int64_t tokens) {
  if (!layout_->grows()) return;
  if (tokens > capacity_) {
    AlignedBuffer<float> cache(tokens * layout_->token_floats);
    cache_ = std::move(cache);
    capacity_ = tokens;
  }
  CopyCache(other, tokens);
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

StateMark SequenceState::Mark() const {
  StateMark mark;
  Mark(mark);
  return mark;
}

void SequenceState::Mark(StateMark& mark) const {
  const auto copy = [](const float* from, int64_t count,
                       AlignedBuffer<float>& to) {
    if (to.size() != count) to = AlignedBuffer<float>(count);
    CopyFloats(from, count, to.data());
  };
  mark.position = position;
  copy(block_.data(), block_.size(), mark.block);
  copy(logits(), has_logits ? layout_->outputs : 0, mark.logits);
}

void SequenceState::Rollback(const StateMark& mark) {
  position = mark.position;
  CopyFloats(mark.block.data(), mark.block.size(), block_.data());
  has_logits = mark.logits.size() > 0;
  if (has_logits) CopyFloats(mark.logits.data(), layout_->outputs, logits());
}

void SequenceState::Rollback(StateMark&& mark) {
  position = mark.position;
  block_ = std::move(mark.block);
  has_logits = mark.logits.size() > 0;
  if (has_logits) logits_ = std::move(mark.logits);
}

void SequenceState::Exchange(StateMark& mark) {
  position = mark.position;
  std::swap(block_, mark.block);
  has_logits = mark.logits.size() > 0;
  if (has_logits) std::swap(logits_, mark.logits);
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
  bool same = true;
  ForEachRow(
      [&](const StatePlace& place, int64_t layer, int64_t tensor, int64_t row) {
        const int64_t count =
            place.tensor.grows ? position * place.width : place.width;
        same = same && SameFloats(Row(layer, tensor, row),
                                  other.Row(layer, tensor, row), count);
      });
  return same && (!has_logits ||
                  SameFloats(logits(), other.logits(), layout_->outputs));
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
