// What a sequence carries from token to token: the memory of State.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/state/cross_memory.h"
#include "runtime/state/shared_floats.h"
#include "runtime/state/state_layout.h"

namespace tarn {

/// What SequenceState::Rollback needs to take tokens back.
struct StateMark {
  SharedFloats block, logits;  // empty where there are none
  int64_t position = 0;
};

/// The tensors of all layers by the layout, float32. Move-only; one writer at a
/// time. Clones and marks share its memory until one of them changes: then
/// Reserve copies. Besides what it shares a state has at most one block of
/// memory, which is used again.
class SequenceState {
 public:
  explicit SequenceState(std::shared_ptr<const StateLayout> layout);
  /// For one that gets its value from another state.
  struct NoMemory {};
  SequenceState(std::shared_ptr<const StateLayout> layout, NoMemory)
      : layout_(std::move(layout)) {}

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
  /// To write, after Reserve.
  float* Tensor(int64_t layer, int64_t tensor) {
    assert(block_.own() && cache_.own());
    return const_cast<float*>(std::as_const(*this).Tensor(layer, tensor));
  }
  float* Row(int64_t layer, int64_t tensor, int64_t row) {
    assert(block_.own() && cache_.own());
    return const_cast<float*>(std::as_const(*this).Row(layer, tensor, row));
  }

  /// Before tokens are consumed: makes room for this many, and copies what
  /// others share. The contents do not change. No-op where nothing is shared
  /// and nothing grows. Throws std::bad_alloc.
  void Reserve(int64_t tokens);
  /// The same, but what is fixed is there when `copies` have been made, which
  /// must happen even where this or what follows throws.
  void Reserve(int64_t tokens, FloatCopies& copies);
  void CopyFrom(const SequenceState& other);  // same layout object; O(1)
  /// Takes the first `tokens` tokens of the tensors that grow from another
  /// state of the same layout, which has read as many, and nothing else. O(1).
  void CopyRows(const SequenceState& other, int64_t tokens);
  SequenceState Clone() const;  // O(1)
  void Reset();                 // the memory stays
  /// Keeps the value as it is, to take back tokens that are consumed after it.
  /// O(1); the fixed tensors are copied once Reserve is called. What grows is
  /// only ever appended to. The source is not part of it.
  StateMark Mark() const;
  /// The same as a copy, into a mark whose memory is used again; Reserve then
  /// copies nothing.
  void MarkCopy(StateMark& mark) const;
  void Rollback(const StateMark& mark);  // of this object; O(1)
  /// The same, and leaves this state's memory in the mark, to be used again.
  void Exchange(StateMark& mark);
  /// Memory for the next copy, where there is none.
  void GiveSpare(SharedFloats block);
  int64_t capacity() const { return capacity_; }  // tokens there is room for
  int64_t bytes() const;  // of recurrence, spare capacity included
  int64_t growing_bytes() const { return cache_.bytes(); }  // the same of these
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

  float* logits() {  // [outputs]
    assert(logits_.own());
    return logits_.data();
  }
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
  // Tokens of the cache `from`, which has room for `capacity`, into cache_.
  void CopyCache(const SharedFloats& from, int64_t capacity, int64_t tokens);
  void FillInitial();

  // Tokens whose rows may still be needed, by who goes back and then forward
  // again: as many as it ever had.
  int64_t Rows() const { return std::max(rows_, position); }

  std::shared_ptr<const StateLayout> layout_;
  int64_t capacity_ = 0;
  int64_t rows_ = 0;
  SharedFloats block_;  // fixed tensors
  SharedFloats cache_;  // growing tensors, capacity_ tokens of each
  SharedFloats logits_;
  // Its memory while it shares another's, used for the next copies.
  SharedFloats spare_block_, spare_cache_, spare_logits_;
};

}  // namespace tarn
