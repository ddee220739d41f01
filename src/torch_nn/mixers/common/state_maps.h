// States of sequences that are cut over ranks, where a piece maps the state
// before it to A S + b.
#pragma once

#include <vector>

#include "torch_nn/torch.h"

namespace tarn::nn {

/// The state [B, H, K, V] after pieces that followed one another from the first
/// on, earlier[i] = {b, A}: b [B, H, K, V]; A a matrix [B, H, K, K], or, as
/// [B, H, K] or [B, H, 1], a diagonal one. Products have the dtype of b, under
/// autocast too: a state sums over a whole sequence. earlier is not empty.
torch::Tensor StateAfter(
    const std::vector<std::vector<torch::Tensor>>& earlier);

}  // namespace tarn::nn
