// The states of a stack of layers, whatever mixers they are made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/text.h"
#include "torch_nn/state/mixer_state.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// States of all layers of a stack, and of the memories its cross attention
/// reads (empty without cross attention).
struct StackState {
  std::vector<MixerState> layers;
  std::vector<MixerState> memories;

  int64_t batch() const { return layers.front().batch(); }
  /// [B] int64: tokens each sequence has taken in.
  const torch::Tensor& lengths() const { return layers.front().lengths; }
  StackState IndexSelect(const torch::Tensor& rows) const;
  /// Resets the layers; memories stay, as they belong to the input.
  StackState Reset(const torch::Tensor& which) const;
  int64_t bytes() const;
  bool operator==(const StackState& other) const = default;
};

/// Calls visit("layers.0", state), ..., visit("memories.0", state), ... for
/// every part of a state.
template <typename State, typename Visit>
void ForEachPart(State& state, const Visit& visit) {
  for (size_t i = 0; i < state.layers.size(); ++i) {
    visit(StrCat("layers.", i), state.layers[i]);
  }
  for (size_t i = 0; i < state.memories.size(); ++i) {
    visit(StrCat("memories.", i), state.memories[i]);
  }
}

/// Hash of every name, length and number, continued from `seed`. O(bytes).
uint64_t HashState(const StackState& state, uint64_t seed = 0);

/// Throws ArgumentError ("where: state") unless tokens [B, T] have as many
/// sequences as the state.
void CheckStateBatch(const char* where, const StackState& state,
                     const torch::Tensor& tokens);

}  // namespace tarn::nn
