// A layer with parallel mixers: all read the same rows, and what they give is
// added, as in Falcon-H1 (arXiv 2507.22448). A configuration names them with
// '+' between: "mamba2+full". Private to this folder; model_config.h has what
// others ask of such a layer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "config/mixer_spec.h"
#include "config/model_config.h"

namespace tarn {

/// The most parallel mixers of a layer. Rows of parallel mixers stay in the
/// registry for the life of the program, and files may ask for each of them.
inline constexpr size_t kMostBranches = 3;

/// "mamba2+full".
std::string ParallelName(const std::vector<AttentionKind>& branches);

/// The row of a parallel mixer. Its tensors and its state are theirs:
/// tensors under "branches.<number>.", tensors of the state under "<number>.".
MixerSpec ParallelMixer(const std::vector<AttentionKind>& branches);

}  // namespace tarn
