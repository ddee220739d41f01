// What a sequence carries from token to token: the memory behind State.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "config/model_config.h"
#include "kernels/aligned_buffer.h"
#include "runtime/state/cross_memory.h"

namespace tarn {

/// Sizes of a state. One object for each open model: its address tells states
/// of one model from those of another.
struct StateLayout {
  explicit StateLayout(const ModelConfig& config);

  bool linear;
  int64_t layers, heads, d_key, d_value;
  int64_t outputs;    // floats in a row of logits
  int64_t d_feature;  // width of phi(k), linear
  bool norm_sums;     // sums of ||phi(k)|| follow z: the signed denominator
  bool cross;         // a sequence is nothing without its CrossMemory

  /// Bytes of recurrence that a new state holds, and those of one more token.
  int64_t FixedBytes() const;
  int64_t BytesPerToken() const;
  /// Floats of one layer's S, z and norm sums, each padded to 64 bytes.
  int64_t LayerFloats() const;
  int64_t SFloats() const;  // of S with its padding
  int64_t ZFloats() const;
  bool operator==(const StateLayout&) const = default;
};

/// Linear models: per layer S [H, C, V], z [H, C] and, where they are kept,
/// norm sums [H], all in one block (C: width of phi(k), mostly K). Softmax
/// models: per layer and head keys [capacity, K], values [capacity, V], in one
/// block whose capacity doubles: what a head reads lies in one piece, and
/// streams. Move-only; one writer at a time.
class SequenceState {
 public:
  explicit SequenceState(std::shared_ptr<const StateLayout> layout);

  const StateLayout& layout() const { return *layout_; }
  const float* S(int64_t layer) const {
    return block_.data() + layer * layer_floats_;
  }
  const float* Z(int64_t layer) const { return S(layer) + s_floats_; }
  const float* NormSums(int64_t layer) const {
    return Z(layer) + layout_->ZFloats();
  }
  const float* Keys(int64_t layer, int64_t head) const {
    return block_.data() + (layer * layout_->heads + head) * capacity_ *
                               (layout_->d_key + layout_->d_value);
  }
  const float* Values(int64_t layer, int64_t head) const {
    return Keys(layer, head) + capacity_ * layout_->d_key;
  }
  float* S(int64_t layer) { return Writable(std::as_const(*this).S(layer)); }
  float* Z(int64_t layer) { return Writable(std::as_const(*this).Z(layer)); }
  float* NormSums(int64_t layer) {
    return Writable(std::as_const(*this).NormSums(layer));
  }
  float* Keys(int64_t layer, int64_t head) {
    return Writable(std::as_const(*this).Keys(layer, head));
  }
  float* Values(int64_t layer, int64_t head) {
    return Writable(std::as_const(*this).Values(layer, head));
  }

  /// Makes room for the keys and values of this many tokens; the contents do
  /// not change. No-op for linear models. Throws std::bad_alloc.
  void Reserve(int64_t tokens);
  void CopyFrom(const SequenceState& other);  // same layout object
  SequenceState Clone() const;
  void Reset();                                   // the memory stays
  int64_t capacity() const { return capacity_; }  // of a cache, tokens
  int64_t bytes() const;  // of recurrence, spare capacity included
  bool SameBits(const SequenceState& other) const;
  uint64_t Hash() const;

  float* logits() { return logits_.data(); }  // [outputs]
  const float* logits() const { return logits_.data(); }

  /// What cross attention reads. Copies share it: nobody writes to it.
  std::shared_ptr<const CrossMemory> memory;
  int64_t position = 0;     // tokens consumed
  bool has_logits = false;  // logits() belong to the last token
  // Of Model::StepBatch, which finds a state that comes twice by it.
  SequenceState* batch_link = nullptr;

 private:
  // Of an address inside block_, for whoever may write to *this.
  float* Writable(const float* p) {
    return block_.data() + (p - block_.data());
  }
  // Calls f(layer, head) for every head of a cache.
  template <typename F>
  void ForEachHead(const F& f) const;
  // Copies the cached tokens of another state, of any capacity, into this one.
  void CopyCache(const SequenceState& other);
  // Calls f(address, count) for every run of floats that is part of the value.
  template <typename F>
  void ForEachRun(const F& f) const;

  std::shared_ptr<const StateLayout> layout_;
  int64_t s_floats_, layer_floats_;  // linear
  int64_t capacity_ = 0;             // softmax, tokens
  AlignedBuffer<float> block_, logits_;
};

}  // namespace tarn
