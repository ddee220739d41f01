// Checks whether a state belongs to a model.
#pragma once

#include <functional>
#include <string>

#include "torch_nn/models/model.h"
#include "torch_nn/state/stack_state.h"

namespace tarn::nn {

/// Called with place, wanted and given; throws the caller's own error.
using Fail = std::function<void(const std::string&, const std::string&,
                                const std::string&)>;

/// Compares names, presence, type and shape of every tensor with those of an
/// initial state, and lengths with what the tensors hold; `fail` gets the first
/// difference. prefix: put before the places it names.
void CheckState(const ModelImpl& model, const StackState& state,
                const std::string& prefix, const Fail& fail);

}  // namespace tarn::nn
