// What a sequence carries from token to token: the memory of State.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/aligned_buffer.h"
#include "runtime/state/cross_memory.h"
#include "runtime/state/state_layout.h"

namespace tarn {

/// What SequenceState::Rollback needs to take tokens back.
struct StateMark {
  AlignedBuffer<float> block, logits;  // empty where there are none
  int64_t position = 0;
};

/// The tensors of all layers by the layout, float32. Move-only; one writer at a
/// time.
class SequenceState {
 public:
  explicit SequenceState(std::shared_ptr<const StateLayout> layout);

  const StateLayout& layout() const { return *layout_; }
  const std::shared_ptr<const StateLayout>& shared_layout() const {
    return layout_;
  }
  /// Tensor number `tensor` of a layer's StateSpec; row 0 of one that grows.
  const float* Tensor(int64_t layer, int64_t tensor) const {
    const StatePlace& place = layout_->At(layer, tensor);
    return place.tensor.grows ? cache_.data() + place.offset * capacity_
                              : block_.data() + place.offset;
  }
  /// Row `row` [capacity, W] of a tensor that grows; a fixed one is row 0.
  const float* Row(int64_t layer, int64_t tensor, int64_t row) const {
    return row == 0 ? Tensor(layer, tensor)
                    : Tensor(layer, tensor) +
                          row * capacity_ * layout_->At(layer, tensor).width;
  }
  float* Tensor(int64_t layer, int64_t tensor) {
    return const_cast<float*>(std::as_const(*this).Tensor(layer, tensor));
  }
  float* Row(int64_t layer, int64_t tensor, int64_t row) {
    return const_cast<float*>(std::as_const(*this).Row(layer, tensor, row));
  }

  /// Makes room for this many tokens; the contents do not change. No-op where
  /// nothing grows. Throws std::bad_alloc.
  void Reserve(int64_t tokens);
  void CopyFrom(const SequenceState& other);  // same layout object
  /// Takes the first `tokens` tokens of the tensors that grow from another
  /// state of the same layout, which has read as many, and nothing else.
  void CopyRows(const SequenceState& other, int64_t tokens);
  SequenceState Clone() const;
  void Reset();  // the memory stays
  /// Keeps the value as it is, to take back tokens that are consumed after it.
  /// O(fixed tensors): what grows is only ever appended to. The source is not
  /// part of it. Throws std::bad_alloc.
  StateMark Mark() const;
  /// The same into a mark whose memory is used again.
  void Mark(StateMark& mark) const;
  void Rollback(const StateMark& mark);  // of this object
  /// The same without a copy: takes the mark's memory. O(1).
  void Rollback(StateMark&& mark);
  /// The same, and leaves this state's memory in the mark, to be used again.
  void Exchange(StateMark& mark);
  int64_t capacity() const { return capacity_; }  // tokens there is room for
  int64_t bytes() const;  // of recurrence, spare capacity included
  bool SameBits(const SequenceState& other) const;
  uint64_t Hash() const;
  /// Calls f(place, layer, floats, count) for every run of floats that is part
  /// of the value, in the order of layers and their tensors: a fixed tensor is
  /// one run, one that grows a run for each of its rows.
  template <typename F>
  void ForEachRun(const F& f) const {
    ForEachRow([&](const StatePlace& place, int64_t layer, int64_t tensor,
                   int64_t row) {
      f(place, layer, Row(layer, tensor, row),
        place.tensor.grows ? position * place.width : place.width);
    });
  }

  float* logits() { return logits_.data(); }  // [outputs]
  const float* logits() const { return logits_.data(); }

  /// What cross attention reads. Copies share it: it is never written to.
  std::shared_ptr<const CrossMemory> memory;
  int64_t position = 0;     // tokens consumed
  bool has_logits = false;  // logits() belong to the last token

 private:
  // Calls f(place, layer, tensor, row) for every row of every tensor.
  template <typename F>
  void ForEachRow(const F& f) const {
    for (size_t i = 0; i < layout_->layers.size(); ++i) {
      for (size_t t = 0; t < layout_->layers[i].size(); ++t) {
        const StatePlace& place = layout_->layers[i][t];
        for (int64_t row = 0; row < place.rows; ++row) {
          f(place, static_cast<int64_t>(i), static_cast<int64_t>(t), row);
        }
      }
    }
  }
  // Copies cached tokens of another state, of any capacity, into this one,
  // which has room.
  void CopyCache(const SequenceState& other, int64_t tokens);
  void FillInitial();

  std::shared_ptr<const StateLayout> layout_;
  int64_t capacity_ = 0;
  AlignedBuffer<float> block_;  // fixed tensors
  AlignedBuffer<float> cache_;  // growing tensors
  AlignedBuffer<float> logits_;
};

}  // namespace tarn
