// What the kinds of attention built from plain torch operators share: checks of
// their operands, kept positions, the precision they compute in, and gradients
// by recomputation.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>
#include <vector>

#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/call.h"
#include "torch_ops/softmax/attention.h"

namespace tarn::ops {

/// Throws ShapeError, DTypeError or DeviceError unless queries are [B, T, H,
/// K], keys [B, S, H, K] and values [B, S, H, V], of one dtype out of float32,
/// float64, bfloat16 and float16, with H, K, V >= 1. Sizes may be symbolic.
void CheckOperands(const char* op, const at::Tensor& queries,
                   const at::Tensor& keys, const at::Tensor& values);

/// Throws unless lengths are absent or [B] int32 or int64 within [0, end].
/// Reads them where they hold data.
void CheckLengths(const char* op, const char* name,
                  const OptionalTensor& lengths, const at::Tensor& like,
                  const c10::SymInt& end);

/// x [B, S, ...] in its compute type, with zeros at the positions that `kept`
/// [B, S] leaves out; undefined: none.
at::Tensor Skip(const at::Tensor& x, const at::Tensor& kept);

/// x with 0 for NaN and infinity, which get no gradient.
at::Tensor FiniteOrZero(const at::Tensor& x);

/// [..., 1] bool: whether a row of the last axis holds NaN or infinity.
at::Tensor NotFiniteRows(const at::Tensor& x);

/// out [..., V] with NaN in rows where `spoiled` [..., 1]. There the gradient
/// of `queries` [..., K] (finite) is NaN and nothing flows into `out`; other
/// rows keep their values both ways.
at::Tensor SpoilRows(const at::Tensor& out, const at::Tensor& queries,
                     const at::Tensor& spoiled);

/// Gradients of `inputs` through `f`, given the gradient of its result. Runs f
/// on detached copies with recording on, although the caller is below
/// autograd: a forward pass then saves its inputs and nothing else. Inputs that
/// f does not use get zeros.
std::vector<at::Tensor> RecomputedGradients(
    const std::vector<at::Tensor>& inputs, const at::Tensor& grad_out,
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f);

}  // namespace tarn::ops
