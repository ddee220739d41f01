// Where a model's recurrent state is in memory: made from the StateSpec of
// every layer (LayerState), and from nothing else.
#pragma once

#include <cstdint>
#include <vector>

#include "config/mixer_spec.h"
#include "config/model_config.h"
#include "kernels/softmax_attention/cache_type.h"
#include "runtime/state/shared_floats.h"

namespace tarn {

/// One tensor of one layer. Fixed tensors are in one block, each padded to 64
/// bytes; growing ones are in another, whose room for tokens doubles: shape
/// [R, W...] of a token is held as [R, capacity, W...], so that what a head
/// reads is contiguous and can be streamed. Rounded tensors are held in runs of
/// words, which are floats to all who do not read them (RowWords of each run of
/// `numbers`, kernels/softmax_attention/cache_rows.h).
struct StatePlace {
  StateTensor tensor;
  int64_t offset = 0;  // floats into the block; growing: into one token
  int64_t rows = 1;    // R of a growing tensor
  int64_t width = 0;   // floats of a row, W...; of a fixed tensor, of all
  CacheType type = CacheType::kF32;
  int64_t numbers = 0;  // rounded together; 0 where the type is kF32
  bool operator==(const StatePlace&) const = default;
};

/// One object for each open model: its address tells states of one model from
/// those of another.
struct StateLayout {
  /// cache: of tensors that may be rounded.
  explicit StateLayout(const ModelConfig& config,
                       CacheType cache = CacheType::kF32);

  std::vector<std::vector<StatePlace>> layers;
  /// The same tensors again, by the mixers of layers that have parallel
  /// ones: what such a mixer takes for its layer is BranchLayer.
  std::vector<std::vector<StatePlace>> branches;
  std::vector<int64_t> first_branch;  // [layers]: of each, in `branches`
  int64_t outputs = 0;                // floats in a row of logits
  int64_t fixed_floats = 0;           // of the block of fixed tensors, padded
  int64_t token_floats = 0;           // of one token in the other
  bool cross = false;                 // a sequence needs its CrossMemory
  CacheType cache = CacheType::kF32;  // as given
  /// The fixed tensors of a new state, for all states to share until they read
  /// a token; empty: each makes its own. Not part of the value.
  SharedFloats initial;

  const StatePlace& At(int64_t layer, int64_t tensor) const {
    const size_t index = static_cast<size_t>(layer);
    const auto& places =
        index < layers.size() ? layers[index] : branches[index - layers.size()];
    return places[static_cast<size_t>(tensor)];
  }
  int64_t BranchLayer(int64_t layer, int64_t branch) const {
    return static_cast<int64_t>(layers.size()) +
           first_branch[static_cast<size_t>(layer)] + branch;
  }
  /// The number of a layer's last tensor: its feed-forward part's, where that
  /// carries one.
  int64_t Last(int64_t layer) const {
    return static_cast<int64_t>(layers[static_cast<size_t>(layer)].size()) - 1;
  }
  bool operator==(const StateLayout& other) const;
  bool grows() const { return token_floats > 0; }
  bool rounds() const;  // whether any tensor is held in another type than kF32
  /// Bytes of recurrence that a new state holds, and those of one more token.
  int64_t FixedBytes() const;
  int64_t BytesPerToken() const;
};

}  // namespace tarn
