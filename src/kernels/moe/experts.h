// The experts of a mixture: feed-forward networks of which each token takes
// those that its router chose (Shazeer et al. 2017, arXiv 1701.06538, eq. (1);
// the gated form: Shazeer 2020, arXiv 2002.05202, eq. (5), (6)). For token t
// with experts c_tj of weights w_tj, without biases:
//   y_t = sum_j w_tj W2_c h,  h = act(W1_c x_t) * (W3_c x_t)  or  act(W1_c x_t)
// summed in the order of j. Rows are sorted by expert (groups.h); the matrices
// of an expert are read once a call, and not at all if no token needs them. A
// token's y has the same bits whatever other tokens are computed with it.
#pragma once

#include <cstdint>

#include "core/executor.h"

namespace tarn {

/// x sigma(x), x Phi(x), GELU with a tanh, max(x, 0), max(x, 0)^2.
enum class ExpertActivation { kSilu, kGelu, kGeluTanh, kRelu, kRelu2 };

/// All tensors are dense float32.
struct ExpertsProblem {
  int64_t tokens = 0, top_k = 1, experts = 1, d_model = 0, d_ff = 0;
  ExpertActivation activation = ExpertActivation::kSilu;
  const float* x = nullptr;         // [tokens, d_model]
  const int64_t* chosen = nullptr;  // [tokens, top_k]
  const float* weights = nullptr;   // [tokens, top_k]
  const float* weight1 = nullptr;   // [experts, d_ff, d_model]
  const float* weight2 = nullptr;   // [experts, d_model, d_ff]
  const float* weight3 = nullptr;   // as weight1; null: no gate
};

/// Floats and indices that a call needs; memory of floats is at a multiple of
/// 64 bytes. For the gradient, set `gradient`.
int64_t ExpertsWorkspaceFloats(const ExpertsProblem& p,
                               const Executor& executor, bool gradient);
int64_t ExpertsWorkspaceIndices(const ExpertsProblem& p);

/// y [tokens, d_model]. product1, product3 [tokens top_k, d_ff]: W1 x and W3 x
/// of the sorted rows, which the gradient reads (product3 only with a gate).
/// Throws ShapeError for negative sizes, ArgumentError for null data of a size
/// that is not 0 and a chosen index outside 0 .. experts - 1. Allocates
/// nothing; thread-safe.
void ExpertsForward(const ExpertsProblem& p, float* y, float* product1,
                    float* product3, float* workspace, int64_t* indices,
                    Executor& executor);

struct ExpertsGradients {
  const float* grad_y = nullptr;    // [tokens, d_model]
  const float* product1 = nullptr;  // of the forward pass
  const float* product3 = nullptr;
  float* grad_x = nullptr;  // null: not wanted
  float* grad_weights = nullptr;
  float* grad_weight1 = nullptr;
  float* grad_weight2 = nullptr;
  float* grad_weight3 = nullptr;  // only with a gate
};

/// Throws like the forward pass. The gradients of an expert that no token chose
/// are zeros.
void ExpertsBackward(const ExpertsProblem& p, const ExpertsGradients& g,
                     float* workspace, int64_t* indices, Executor& executor);

}  // namespace tarn
