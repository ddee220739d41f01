// What attention carries from token to token, as values: copying a state is a
// handle a tensor, and no call changes a tensor that a state holds. So a fork
// is a copy, a beam is a reordering, and neither touches what it came from.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "config/model_config.h"

namespace tarn::nn {

/// State of one attention layer for B sequences. Made by
/// AttentionLayer::InitialState (or MemoryState, for cross attention); which
/// tensors are defined follows from the kind. Axis 0 of every tensor is B.
struct AttentionState {
  AttentionKind kind = AttentionKind::kLinear;
  torch::Tensor lengths;  // [B] int64 on the CPU: tokens taken in, or in memory
  // linear, C features: sums of outer products, of features, and what the
  // feature map or the denominator carries along (undefined where nothing).
  torch::Tensor S;      // [B, H, C, V]
  torch::Tensor z;      // [B, H, C]
  torch::Tensor extra;  // [B, H] or [B, H, C], see ops::LinearState
  // Kinds that keep keys and values. Aligned at the end: of `t` rows the last
  // min(t, lengths[b]) are tokens of sequence b. (A memory: key_mask says.)
  torch::Tensor keys;      // [B, t, H, K]
  torch::Tensor values;    // [B, t, H, V]
  torch::Tensor key_mask;  // [B, t] bool, memories only; undefined: all
  // aft-simple, per channel: running maximum and the sums below it.
  torch::Tensor m, a, b;  // [B, H, V]

  int64_t batch() const { return lengths.size(0); }
  /// Row i of the result is row rows[i] of this state. rows int64, any length,
  /// repeats allowed. Throws ArgumentError for a row that is not there.
  AttentionState IndexSelect(const torch::Tensor& rows) const;
  /// The state with the rows where `which` [B] bool holds at their beginning.
  AttentionState Reset(const torch::Tensor& which) const;
  /// Bytes of all its tensors.
  int64_t bytes() const;
};

/// States of all layers of a stack, and of the memories its cross attention
/// reads (empty without).
struct StackState {
  std::vector<AttentionState> layers;
  std::vector<AttentionState> memories;

  int64_t batch() const { return layers.front().batch(); }
  /// [B] int64: tokens each sequence has taken in.
  const torch::Tensor& lengths() const { return layers.front().lengths; }
  StackState IndexSelect(const torch::Tensor& rows) const;
  /// Resets the layers; memories stay, as they belong to the input.
  StackState Reset(const torch::Tensor& which) const;
  int64_t bytes() const;
};

/// Throws ArgumentError ("where: state") unless tokens [B, T] are those of as
/// many sequences as the state has.
void CheckStateBatch(const char* where, const StackState& state,
                     const torch::Tensor& tokens);

/// [B, size] bool, true for the first lengths[b] entries of row b; undefined
/// for undefined lengths. Throws ShapeError, DTypeError or ArgumentError
/// ("where: lengths") unless lengths is [B] int64 in [0, size].
torch::Tensor PrefixMask(const char* where, const torch::Tensor& lengths,
                         int64_t batch, int64_t size);

}  // namespace tarn::nn
