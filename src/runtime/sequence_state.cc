#include "runtime/sequence_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tarn {
namespace {

constexpr int64_t kAlignFloats = 16;  // 64 bytes
constexpr int64_t kFirstCapacity = 64;
constexpr int64_t kFloatBytes = sizeof(float);

int64_t Padded(int64_t floats) {
  return (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

bool SameFloats(const float* a, const float* b, int64_t count) {
  return count == 0 ||
         std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

void CopyFloats(const float* from, int64_t count, float* to) {
  if (count > 0) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  }
}

// Multiply and fold, one 32-bit word at a time; not cryptographic.
uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace

StateLayout::StateLayout(const ModelConfig& config)
    : linear(config.attention == AttentionKind::kLinear),
      layers(config.n_layers),
      heads(config.n_heads),
      d_key(config.d_key),
      d_value(config.d_value),
      vocab(config.vocab_size) {}

int64_t StateLayout::FixedBytes() const {
  return linear ? layers * heads * (d_key * d_value + d_key) * kFloatBytes : 0;
}

int64_t StateLayout::BytesPerToken() const {
  return linear ? 0 : layers * heads * (d_key + d_value) * kFloatBytes;
}

int64_t StateLayout::SFloats() const { return Padded(heads * d_key * d_value); }

int64_t StateLayout::LayerFloats() const {
  return SFloats() + Padded(heads * d_key);
}

SequenceState::SequenceState(std::shared_ptr<const StateLayout> layout)
    : layout_(std::move(layout)),
      s_floats_(layout_->SFloats()),
      layer_floats_(layout_->LayerFloats()),
      key_row_(layout_->heads * layout_->d_key),
      value_row_(layout_->heads * layout_->d_value),
      logits_(layout_->vocab) {
  if (layout_->linear) {
    block_ = AlignedBuffer<float>(layout_->layers * layer_floats_);
  }
}

void SequenceState::Reserve(int64_t tokens) {
  if (layout_->linear || tokens <= capacity_) return;
  SequenceState larger(layout_);
  larger.capacity_ = std::max({tokens, 2 * capacity_, kFirstCapacity});
  larger.block_ = AlignedBuffer<float>(layout_->layers * larger.capacity_ *
                                       (key_row_ + value_row_));
  for (int64_t layer = 0; layer < layout_->layers; ++layer) {
    CopyFloats(Keys(layer), position * key_row_, larger.Keys(layer));
    CopyFloats(Values(layer), position * value_row_, larger.Values(layer));
  }
  std::swap(block_, larger.block_);
  capacity_ = larger.capacity_;
}

void SequenceState::CopyFrom(const SequenceState& other) {
  if (this == &other) return;
  if (layout_->linear) {
    CopyFloats(other.block_.data(), other.block_.size(), block_.data());
  } else {
    if (other.position > capacity_) {
      // Before anything is copied: what this state held is not wanted.
      AlignedBuffer<float> block(other.block_.size());
      block_ = std::move(block);
      capacity_ = other.capacity_;
    }
    for (int64_t layer = 0; layer < layout_->layers; ++layer) {
      CopyFloats(other.Keys(layer), other.position * key_row_, Keys(layer));
      CopyFloats(other.Values(layer), other.position * value_row_,
                 Values(layer));
    }
  }
  position = other.position;
  has_logits = other.has_logits;
  if (has_logits) CopyFloats(other.logits(), layout_->vocab, logits());
}

SequenceState SequenceState::Clone() const {
  SequenceState copy(layout_);
  if (!layout_->linear) {
    copy.block_ = AlignedBuffer<float>(block_.size());
    copy.capacity_ = capacity_;
  }
  copy.CopyFrom(*this);
  return copy;
}

void SequenceState::Reset() {
  position = 0;
  has_logits = false;
  if (layout_->linear && block_.size() > 0) {
    std::memset(block_.data(), 0, static_cast<size_t>(block_.bytes()));
  }
}

int64_t SequenceState::bytes() const {
  return layout_->linear ? layout_->FixedBytes()
                         : capacity_ * layout_->BytesPerToken();
}

template <typename F>
void SequenceState::ForEachRun(const F& f) const {
  for (int64_t layer = 0; layer < layout_->layers; ++layer) {
    if (layout_->linear) {
      f(S(layer), layer_floats_);  // padding is zero throughout
    } else {
      f(Keys(layer), position * key_row_);
      f(Values(layer), position * value_row_);
    }
  }
  if (has_logits) f(logits(), layout_->vocab);
}

bool SequenceState::SameBits(const SequenceState& other) const {
  if (!(*layout_ == *other.layout_) || position != other.position ||
      has_logits != other.has_logits) {
    return false;
  }
  for (int64_t layer = 0; layer < layout_->layers; ++layer) {
    if (layout_->linear) {
      if (!SameFloats(S(layer), other.S(layer), layer_floats_)) return false;
    } else if (!SameFloats(Keys(layer), other.Keys(layer),
                           position * key_row_) ||
               !SameFloats(Values(layer), other.Values(layer),
                           position * value_row_)) {
      return false;
    }
  }
  return !has_logits || SameFloats(logits(), other.logits(), layout_->vocab);
}

uint64_t SequenceState::Hash() const {
  uint64_t hash = Mix(Mix(0, static_cast<uint64_t>(position)), has_logits);
  ForEachRun([&hash](const float* p, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      uint32_t word;
      std::memcpy(&word, p + i, sizeof(word));
      hash = Mix(hash, word);
    }
  });
  return hash;
}

}  // namespace tarn
