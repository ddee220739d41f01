// How a call is cut: a task is up to 64 channels of one head of one sequence.
// Adjacent heads count as one, so that small heads cost no more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/aft_simple/aft_simple.h"

namespace tarn::aft_simple {

constexpr int64_t kSliceChannels = 64;

/// Some channels of the rows of a sequence, `row` floats apart.
struct Rows {
  float* data = nullptr;
  int64_t row = 0;
  float* operator[](int64_t i) const { return data + i * row; }
};

/// What a kernel gets.
struct Slice {
  int64_t queries = 0, keys = 0, channels = 0;
  int64_t reach = 0;  // query i reads keys j <= i + reach, in [-T, S]
  Rows q, k, v;
  const bool* kept = nullptr;  // [S]
  AftSimpleState state;        // null: the one before the first key

  bool Keeps(int64_t key) const { return kept == nullptr || kept[key]; }
  /// Keys that query i reads: [0, this).
  int64_t KeysOf(int64_t i) const {
    return std::clamp<int64_t>(i + reach + 1, 0, keys);
  }
};

/// The tasks of a checked call.
class Slices {
 public:
  /// results: views besides the inputs that RowsOf will be called with.
  Slices(const AftSimpleInputs& in,
         std::initializer_list<const TensorView*> results)
      : in_(in), heads_(in.queries.size[2]), width_(in.queries.size[3]) {
    const auto side_by_side = [&](const TensorView& view) {
      return view.data == nullptr || view.stride[2] == width_;
    };
    if (side_by_side(in.queries) && side_by_side(in.keys) &&
        side_by_side(in.values) &&
        std::all_of(results.begin(), results.end(),
                    [&](const TensorView* v) { return side_by_side(*v); })) {
      width_ *= heads_;
      heads_ = 1;
    }
    pieces_ = (width_ + kSliceChannels - 1) / kSliceChannels;
    const int64_t queries = in.queries.size[1], keys = in.keys.size[1];
    // Beyond either end it does not matter how far a query reads.
    reach_ = in.causal ? std::clamp<int64_t>(in.causal_offset, -queries, keys)
                       : keys;
  }

  int64_t count() const { return in_.queries.size[0] * heads_ * pieces_; }

  Slice At(int64_t task, const AftSimpleState& state) const {
    const int64_t b = task / (heads_ * pieces_), begin = Begin(task);
    Slice slice;
    slice.queries = in_.queries.size[1];
    slice.keys = in_.keys.size[1];
    slice.channels = std::min(kSliceChannels, width_ - begin);
    slice.reach = reach_;
    slice.q = RowsOf(in_.queries, task);
    slice.k = RowsOf(in_.keys, task);
    slice.v = RowsOf(in_.values, task);
    if (in_.kept != nullptr) slice.kept = in_.kept + b * slice.keys;
    slice.state = StateOf(state, task);
    return slice;
  }

  /// The task's columns of a view.
  Rows RowsOf(const TensorView& view, int64_t task) const {
    if (view.data == nullptr) return {};
    const int64_t b = task / (heads_ * pieces_);
    const int64_t h = task / pieces_ % heads_;
    return {reinterpret_cast<float*>(view.Row(b, 0, h)) + Begin(task),
            view.stride[1]};
  }
  /// The task's part of [B, H, E], or null if that is null.
  template <typename T>
  T* PartOf(T* state, int64_t task) const {
    return state == nullptr ? nullptr
                            : state + task / pieces_ * width_ + Begin(task);
  }
  AftSimpleState StateOf(const AftSimpleState& state, int64_t task) const {
    return {PartOf(state.m, task), PartOf(state.a, task),
            PartOf(state.b, task)};
  }

 private:
  int64_t Begin(int64_t task) const { return task % pieces_ * kSliceChannels; }

  const AftSimpleInputs& in_;
  int64_t heads_, width_;
  int64_t pieces_ = 0;  // of a head
  int64_t reach_ = 0;
};

/// Throws what is wrong with the inputs; allocates only when it throws.
void CheckInputs(const AftSimpleInputs& in);
/// `view` must be float32 of the shape of `like`; only if `optional` may it be
/// null where there is something to hold.
void CheckView(const char* name, const TensorView& view, const TensorView& like,
               bool optional);
/// Checks that all three parts are there, or none of them if `optional`.
void CheckState(const char* name, const AftSimpleInputs& in,
                const AftSimpleState& state, bool optional);

}  // namespace tarn::aft_simple
