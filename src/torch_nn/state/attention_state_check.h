// Whether a state is one of a model. Private to attention_state_*.cc.
#pragma once

#include <functional>
#include <string>

#include "core/error.h"
#include "torch_nn/state/attention_state.h"
#include "torch_nn/models/model.h"

namespace tarn::nn {

// A tensor of AttentionState and its name in files.
struct Member {
  const char* name;
  torch::Tensor AttentionState::*tensor;
  bool grows = false;  // axis 1 counts tokens
};
inline constexpr Member kMembers[] = {
    {"S", &AttentionState::S},
    {"z", &AttentionState::z},
    {"extra", &AttentionState::extra},
    {"keys", &AttentionState::keys, true},
    {"values", &AttentionState::values, true},
    {"key_mask", &AttentionState::key_mask, true},
    {"m", &AttentionState::m},
    {"a", &AttentionState::a},
    {"b", &AttentionState::b}};

// Calls visit("layers.0", ...), ... for every part of a state.
template <typename State, typename Visit>
void ForEachPart(State& state, const Visit& visit) {
  for (size_t i = 0; i < state.layers.size(); ++i) {
    visit(StrCat("layers.", i), state.layers[i]);
  }
  for (size_t i = 0; i < state.memories.size(); ++i) {
    visit(StrCat("memories.", i), state.memories[i]);
  }
}

/// The state of no sequences: what every state of the model is like, without
/// its memory. Throws ArgumentError for a model that has no state.
StackState InitialState(const ModelImpl& model);

// Called with place, wanted and given; throws the error of its caller.
using Fail = std::function<void(const std::string&, const std::string&,
                                const std::string&)>;

/// Compares presence, type and shape of every tensor with those of an initial
/// state, and lengths with what the tensors hold; `fail` gets the first
/// difference. prefix: of the places it names.
void CheckState(const ModelImpl& model, const StackState& state,
                const std::string& prefix, const Fail& fail);

}  // namespace tarn::nn
