#include "runtime/state/sequence_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/state/float_runs.h"
#include "runtime/model/supported.h"

namespace tarn {
namespace {

constexpr int64_t kFirstCapacity = 64;
constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

StateLayout::StateLayout(const ModelConfig& config)
    : linear(config.attention == AttentionKind::kLinear),
      layers(DecoderLayers(config)),
      heads(config.n_heads),
      d_key(config.d_key),
      d_value(config.d_value),
      outputs(config.Outputs()),
      d_feature(FeatureWidth(config.feature_map, config.d_key, config.n_dims)),
      norm_sums(linear && config.denominator == Denominator::kSigned),
      cross(config.arch == Arch::kSeq2seq) {}

int64_t StateLayout::FixedBytes() const {
  const int64_t floats = d_feature * d_value + d_feature + (norm_sums ? 1 : 0);
  return linear ? layers * heads * floats * kFloatBytes : 0;
}

int64_t StateLayout::BytesPerToken() const {
  return linear ? 0 : layers * heads * (d_key + d_value) * kFloatBytes;
}

int64_t StateLayout::SFloats() const {
  return PaddedFloats(heads * d_feature * d_value);
}

int64_t StateLayout::ZFloats() const { return PaddedFloats(heads * d_feature); }

int64_t StateLayout::LayerFloats() const {
  return SFloats() + ZFloats() + (norm_sums ? PaddedFloats(heads) : 0);
}

SequenceState::SequenceState(std::shared_ptr<const StateLayout> layout)
    : layout_(std::move(layout)),
      s_floats_(layout_->SFloats()),
      layer_floats_(layout_->LayerFloats()),
      logits_(layout_->outputs) {
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
  memory = other.memory;
  position = other.position;
  has_logits = other.has_logits;
  if (has_logits) CopyFloats(other.logits(), layout_->outputs, logits());
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
  if (has_logits) f(logits(), layout_->outputs);
}

bool SequenceState::SameBits(const SequenceState& other) const {
  if (!(*layout_ == *other.layout_) || position != other.position ||
      has_logits != other.has_logits ||
      !CrossMemory::SameBits(memory.get(), other.memory.get())) {
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
         (!has_logits || SameFloats(logits(), other.logits(), layout_->outputs));
}

uint64_t SequenceState::Hash() const {
  uint64_t hash =
      MixHash(MixHash(0, static_cast<uint64_t>(position)), has_logits);
  if (memory != nullptr) hash = MixHash(hash, memory->Hash());
  ForEachRun([&hash](const float* p, int64_t count) {
    hash = MixFloats(hash, p, count);
  });
  return hash;
}

}  // namespace tarn
