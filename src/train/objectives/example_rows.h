// Examples as tensors: the rows of one forward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "data/pairs/examples.h"
#include "torch_nn/models/model.h"

namespace tarn::train {

/// The rows of B examples, padded to the longest of them.
/// batch.tokens [B, T], batch.lengths [B], and with targets batch.target_in
/// [B, U]: newline, then the target. targets: [B] labels, or [B, U] the target,
/// then newline, kIgnored after it.
struct ExampleRows {
  nn::Batch batch;
  torch::Tensor targets;
  int64_t predicted = 0;  // labels, or target tokens with the newline
  int64_t tokens = 0;     // of inputs and targets, without padding
};

/// which: indices of examples, one or more. newline: the token that begins and
/// ends a target; -1: the examples have labels.
ExampleRows MakeExampleRows(const Examples& examples,
                            const std::vector<int64_t>& which, int32_t newline);

/// Indices of all examples in batches of at most `rows`, shortest first, so
/// that there is little padding.
std::vector<std::vector<int64_t>> ByLength(const Examples& examples,
                                           int64_t rows);

}  // namespace tarn::train
