// What the earlier pieces of a sequence that is cut over ranks leave to a
// piece.
#pragma once

#include "torch_nn/mixers/gated/rows.h"
#include "torch_nn/state/sequence_cut.h"

namespace tarn::nn {

/// S [B, H, K, V] before the first token of the piece whose inputs these are;
/// differentiable. Every rank calls it; one exchange of a state and of what the
/// piece does to the state before it.
torch::Tensor StateBefore(const GatedForm& form, const GatedSizes& sizes,
                          const GatedInputs& in, const SequenceCut& cut);

}  // namespace tarn::nn
