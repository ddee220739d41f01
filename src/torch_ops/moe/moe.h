// Mixtures of experts over tensors, as the C++ modules call them
// (kernels/moe; schemas and gradients in router.cc and experts.cc).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>

#include "kernels/moe/experts.h"
#include "kernels/moe/router.h"
#include "torch_ops/common/call.h"

namespace tarn::ops {

/// weights, as logits, and chosen, int64, both [..., top_k]; logits
/// [..., experts]. bias: [experts], of sigmoid scores; that of the options is
/// not read.
std::pair<at::Tensor, at::Tensor> Route(const at::Tensor& logits,
                                        const RouterOptions& options,
                                        const OptionalTensor& bias = {});

struct ExpertsArguments {
  at::Tensor x;                 // [..., D]
  at::Tensor chosen, weights;   // [..., top_k], of Route
  at::Tensor weight1, weight2;  // [E, F, D], [E, D, F]
  OptionalTensor weight3;       // [E, F, D]
  ExpertActivation activation = ExpertActivation::kSilu;
};
at::Tensor Experts(const ExpertsArguments& arguments);  // [..., D]

/// The load-balancing loss of one router's logits [..., experts], a scalar.
at::Tensor BalanceLoss(const at::Tensor& logits, const at::Tensor& chosen,
                       RouterScores scores);

const char* Name(RouterScores scores);
const char* Name(ExpertActivation activation);

}  // namespace tarn::ops
