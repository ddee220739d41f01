// The router of a mixture of experts: which experts a token goes to, and the
// weight of each (Shazeer et al. 2017, arXiv 1701.06538, section 2; Fedus et
// al. 2021, arXiv 2101.03961, eq. (1)). For the logits l_1 .. l_E of one token
//   C = the top_k experts of largest logit, or, with biases b_e,
//       of largest s_e + b_e (Wang et al. 2024, arXiv 2408.15664)
//   s_e = exp(l_e) / sum_i exp(l_i)  or  sigma(l_e)
//   w_e = scale s_e, or, normalised, scale s_e / sum_{i in C} s_i
// Experts are in falling order of what chooses them; where two are equal, the
// expert of the smaller index comes first. A NaN counts as larger than any
// number. sigma's normalised form adds 1e-20 to its sum (DeepSeek-V3), so that
// no token divides by 0.
#pragma once

#include <cstdint>

#include "core/executor.h"

namespace tarn {

enum class RouterScores { kSoftmax, kSigmoid };

struct RouterOptions {
  RouterScores scores = RouterScores::kSoftmax;
  int64_t top_k = 1;  // 1 to experts
  bool normalize = true;
  double scale = 1.0;
  const float* bias = nullptr;  // b [experts]; null: none. Of sigma alone.
};

/// logits [rows, experts], dense; chosen, weights [rows, top_k]. A row's bits
/// depend on that row alone. Throws ShapeError for negative sizes,
/// ArgumentError for top_k outside 1 .. experts, a scale that is not finite,
/// biases of softmax scores and null data of a size that is not 0. Allocates
/// nothing; thread-safe.
void RouterForward(const RouterOptions& options, int64_t rows, int64_t experts,
                   const float* logits, int64_t* chosen, float* weights,
                   Executor& executor);

/// grad_logits [rows, experts] from the gradient of the weights; `chosen` is
/// what the forward pass gave. Throws like the forward pass, and ArgumentError
/// for a chosen index outside 0 .. experts - 1.
void RouterBackward(const RouterOptions& options, int64_t rows, int64_t experts,
                    const float* logits, const int64_t* chosen,
                    const float* grad_weights, float* grad_logits,
                    Executor& executor);

/// The first `count` indices have to be in 0 .. experts - 1; throws
/// ArgumentError naming `where` and the first that is not.
void CheckChosen(const char* where, const int64_t* chosen, int64_t count,
                 int64_t experts);

}  // namespace tarn
