// States of stacks in files: what a batch of sequences has read, kept for
// another process.
#pragma once

#include <string>

#include "torch_nn/models/model.h"
#include "torch_nn/state/stack_state.h"

namespace tarn::nn {

/// Writes the state of a model (LanguageModel or Seq2Seq) as one safetensors
/// file that appears by rename, the same bytes for the same state; history for
/// gradients is not kept. Throws ArgumentError for a state that is not the
/// model's, DTypeError for float64 (which files do not hold), IoError.
void SaveState(const ModelImpl& model, const StackState& state,
               const std::string& path);

/// The state that SaveState wrote, bit for bit, on the model's device. The
/// file must be of this version (an older one is refused by name: read the
/// tokens and write it again) and of a model with the same configuration and
/// the same random features, or its numbers would mean something else; the
/// trained weights are not compared, since a state may be carried on while its
/// model learns. Names, presence, dtype and shape of every tensor are compared
/// with those of an initial state of this model, lengths with what the tensors
/// hold, and a hash over all of it finds damage. Numbers may be NaN: rows past
/// a sequence's length hold anything. Throws FormatError naming the file, or
/// IoError; ArgumentError for a model with a mixer that has no state.
StackState LoadState(const ModelImpl& model, const std::string& path);

}  // namespace tarn::nn
