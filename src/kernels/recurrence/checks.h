// Argument checks of the gated recurrences: everything here runs before any
// work, and allocates only when it throws.
#pragma once

#include "kernels/recurrence/recurrent_inputs.h"

namespace tarn {

// Which operator is asked for: it names itself in messages and says which of
// the optional tensors are its own.
struct RecurrentOp {
  const char* name;   // "decay_attention"
  bool delta;         // takes betas
  bool pair = false;  // takes reads and writes
};

// `name`: what messages call `out`, which is grad_out in a gradient.
void CheckRecurrent(const RecurrentOp& op, const RecurrentOptions& options,
                    const RecurrentInputs& in, const TensorView& out,
                    const char* name = "out");
void CheckRecurrentGradients(const RecurrentOp& op, const RecurrentInputs& in,
                             const RecurrentGradients& gradients);
void CheckRecurrentStep(const RecurrentOp& op, const RecurrentInputs& in,
                        const RecurrentState& state);

}  // namespace tarn
