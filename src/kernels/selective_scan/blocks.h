// How a selective scan is cut: sequences, blocks of channels, groups of tokens.
// Plain integers, no tensor data.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/selective_scan/selective_scan.h"

namespace tarn {

// Channels of a task: a line of floats of each of four rows.
constexpr int64_t kScanChannels = 64;
// Tokens between checkpoints: states and factors of a group and a block take
// 128 KiB for 16 states.
constexpr int64_t kScanGroup = 16;

// checkpoint: slot of the states before token 16. A packed sequence finds its
// own by its first token: floor(cu[n] / 16) leaves each the floor(tokens / 16)
// slots that it needs.
struct ScanSpan {
  int64_t batch, first, tokens, rows;  // rows: with the padding
  int64_t checkpoint;
};

inline ScanSpan ScanSpanAt(const SelectiveScanInputs& in, int64_t index) {
  if (in.cu_seqlens != nullptr) {
    const int64_t first = in.cu_seqlens[index];
    const int64_t tokens = in.cu_seqlens[index + 1] - first;
    return {0, first, tokens, tokens, first / kScanGroup};
  }
  const int64_t rows = in.inputs.size[1];
  return {index, 0, in.lengths != nullptr ? in.lengths[index] : rows, rows,
          index * (rows / kScanGroup)};
}

// One block of channels of a call. The forward pass runs one of its sequences.
struct ScanTask {
  const SelectiveScanInputs* in;
  const SelectiveScanOutputs* out;         // forward
  const SelectiveScanGradients* gradient;  // backward
  int64_t sequence, channel, channels;
  float* scratch;  // backward: of the worker
  float* sums;     // backward: [B T, 2 states] of the block

  int64_t states() const { return in->states(); }
};

inline int64_t ScanBlocks(const SelectiveScanInputs& in) {
  return (in.channels() + kScanChannels - 1) / kScanChannels;
}

// Floats of [states, kScanChannels].
inline int64_t ScanPanel(const SelectiveScanInputs& in) {
  return in.states() * kScanChannels;
}

// Panels of a worker: states and factors of a group, the state, what flows
// back, the rates and their gradient.
constexpr int64_t kScanPanels = 2 * kScanGroup + 4;

// CheckSelectiveScan for a result that messages call `name`.
void CheckScanCall(const SelectiveScanInputs& in, const TensorView& out,
                   const char* name);
// Throws unless `view` has the shape and the dtype of `like`, and data.
void CheckScanTensor(const TensorView& view, const TensorView& like,
                     const char* name);

}  // namespace tarn
