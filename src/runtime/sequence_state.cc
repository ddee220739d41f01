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
      logits_(layout_->vocab) {
  if (layout_->linear) {
    block_ = AlignedBuffer<float>(layout_->layers * layer_floats_);
  }
}

void SequenceState::Reserve(int64_t tokens) {
  if (layout_->linear || tokens <= capacity_) return;
  SequenceState larger(layout_);
  larger.capacity_ = std::max({tokens, 2 * capacity_, kFirstCapacity});
  larger.block_ =
      AlignedBuffer<float>(larger.capacity_ * layout_->BytesPerToken() / 4);
  larger.CopyCache(*this);
  std::swap(block_, larger.block_);
  capacity_ = larger.capacity_;
}

template <typename F>
void SequenceState::ForEachHead(const F& f) const {
  for (int64_t layer = 0; layer < layout_->layers; ++layer) {
    for (int64_t head = 0; head < layout_->heads; ++head) f(layer, head);
  }
}

void SequenceState::CopyCache(const SequenceState& other) {
  ForEachHead([&](int64_t layer, int64_t head) {
    CopyFloats(other.Keys(layer, head), other.position * layout_->d_key,
               Keys(layer, head));
    CopyFloats(other.Values(layer, head), other.position * layout_->d_value,
               Values(layer, head));
  });
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
    CopyCache(other);
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
  if (layout_->linear) {
    f(block_.data(), block_.size());  // padding is zero throughout
  } else {
    ForEachHead([&](int64_t layer, int64_t head) {
      f(Keys(layer, head), position * layout_->d_key);
      f(Values(layer, head), position * layout_->d_value);
    });
  }
  if (has_logits) f(logits(), layout_->vocab);
}

bool SequenceState::SameBits(const SequenceState& other) const {
  if (!(*layout_ == *other.layout_) || position != other.position ||
      has_logits != other.has_logits) {
    return false;
  }
  bool same = true;
  if (layout_->linear) {
    same = SameFloats(block_.data(), other.block_.data(), block_.size());
  } else {
    ForEachHead([&](int64_t layer, int64_t head) {
      same = same &&
             SameFloats(Keys(layer, head), other.Keys(layer, head),
                        position * layout_->d_key) &&
             SameFloats(Values(layer, head), other.Values(layer, head),
                        position * layout_->d_value);
    });
  }
  return same &&
         (!has_logits || SameFloats(logits(), other.logits(), layout_->vocab));
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
