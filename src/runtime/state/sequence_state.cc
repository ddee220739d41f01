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
      block_(layout_->initial),
      logits_(layout_->outputs) {
  if (block_.size() > 0) return;
  block_ = SharedFloats(layout_->fixed_floats);
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
  FloatCopies copies;
  try {
    Reserve(tokens, copies);
  } catch (...) {
    copies.CopyAll();
    throw;
  }
  copies.CopyAll();
}

void SequenceState::Reserve(int64_t tokens, FloatCopies& copies) {
  const bool grows = layout_->grows();
  if (grows && (tokens > capacity_ || !cache_.own())) {
    const int64_t before = capacity_;
    int64_t room = tokens > before
                       ? std::max({tokens, 2 * before, kFirstCapacity})
                       : before;
    SharedFloats cache;
    if (spare_cache_.own() &&
        spare_cache_.size() >= room * layout_->token_floats) {
      room = spare_cache_.size() / layout_->token_floats;
      cache = std::move(spare_cache_);
    } else {
      cache = SharedFloats(room * layout_->token_floats);
    }
    std::swap(cache, cache_);
    capacity_ = room;
    rows_ = std::min(Rows(), before);
    CopyCache(cache, before, rows_);
  }
  block_.Own(spare_block_, copies);
  logits_.Own(spare_logits_, copies);
}

void SequenceState::CopyCache(const SharedFloats& from, int64_t capacity,
                              int64_t tokens) {
  if (tokens == 0) return;
  for (const auto& layer : layout_->layers) {
    for (const StatePlace& place : layer) {
      if (!place.tensor.grows) continue;
      for (int64_t row = 0; row < place.rows; ++row) {
        CopyFloats(from.data() + place.offset * capacity +
                       row * capacity * place.width,
                   tokens * place.width,
                   cache_.data() + place.offset * capacity_ +
                       row * capacity_ * place.width);
      }
    }
  }
}

void SequenceState::CopyFrom(const SequenceState& other) {
  if (this == &other) return;
  cache_.Share(other.cache_, spare_cache_);
  capacity_ = other.capacity_;
  rows_ = other.position;
  block_.Share(other.block_, spare_block_);
  logits_.Share(other.logits_, spare_logits_);
  memory = other.memory;
  position = other.position;
  has_logits = other.has_logits;
}

void SequenceState::CopyRows(const SequenceState& other, int64_t tokens) {
  cache_.Share(other.cache_, spare_cache_);
  capacity_ = other.capacity_;
  rows_ = tokens;
}

SequenceState SequenceState::Clone() const {
  SequenceState copy(layout_, NoMemory{});
  copy.CopyFrom(*this);
  return copy;
}

void SequenceState::Reset() {
  rows_ = Rows();
  position = 0;
  has_logits = false;
  if (layout_->initial.size() > 0) {
    block_.Share(layout_->initial, spare_block_);
    return;
  }
  block_.OwnToOverwrite(spare_block_);
  std::fill_n(block_.data(), block_.size(), 0.0f);
  FillInitial();
}

StateMark SequenceState::Mark() const {
  return {block_, has_logits ? logits_ : SharedFloats(), position};
}

void SequenceState::MarkCopy(StateMark& mark) const {
  const auto copy = [](const SharedFloats& from, SharedFloats& to) {
    if (to.size() != from.size() || !to.own()) to = SharedFloats(from.size());
    CopyFloats(from.data(), from.size(), to.data());
  };
  copy(block_, mark.block);
  copy(has_logits ? logits_ : SharedFloats(), mark.logits);
  mark.position = position;
}

void SequenceState::Rollback(const StateMark& mark) {
  rows_ = Rows();
  position = mark.position;
  block_.Share(mark.block, spare_block_);
  has_logits = mark.logits.size() > 0;
  if (has_logits) logits_.Share(mark.logits, spare_logits_);
}

void SequenceState::Exchange(StateMark& mark) {
  rows_ = Rows();
  position = mark.position;
  std::swap(block_, mark.block);
  has_logits = mark.logits.size() > 0;
  if (has_logits) std::swap(logits_, mark.logits);
}

void SequenceState::GiveSpare(SharedFloats block) {
  if (spare_block_.size() == 0) spare_block_ = std::move(block);
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
