// Forms of single entries around gated layers, each one pass over rows, and so
// is its gradient. w: a row that all rows share; sigma(x) = 1 / (1 + exp(-x)).
//   kSiluGate     silu(x) y = x sigma(x) y       (Shazeer 2020, eq. (6))
//   kSigmoidGate  sigma(x) y                     (Dauphin et al. 2017)
//   kPowerGate    g(x) y, g(x) = x^(p / (sqrt(x) + 1)) sigma(x) above 0,
//                 x sigma(x) below, p = scale      (arXiv 2605.25704)
//   kElu1         x + 1 above 0, exp(x) below    (Katharopoulos et al. 2020)
//   kSigmoid      sigma(x)
//   kSquareRelu   max(x, 0)^2                    (So et al. 2021, arXiv
//                                                 2109.08668)
//   kLogSigmoid   scale log sigma(x)             (GLA, arXiv 2312.06635)
//   kMixedGate    x (1 + (y - 1) w)              (RWKV-7's keys, arXiv
//                                                 2503.14456)
//   kGelu         u sigma(2 c (u + 0.044715 u^3)), u = x + w, c = sqrt(2 / pi)
// dx, dy: the slopes by x and y times dout; dw: that by w, summed over rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/executor.h"

namespace tarn {

enum class EntryForm {
  kSiluGate,
  kSigmoidGate,
  kPowerGate,
  kElu1,
  kSigmoid,
  kLogSigmoid,
  kMixedGate,
  kGelu,
  kSquareRelu,
};

constexpr bool TakesGated(EntryForm form) {  // y
  return form == EntryForm::kSiluGate || form == EntryForm::kSigmoidGate ||
         form == EntryForm::kPowerGate || form == EntryForm::kMixedGate;
}
constexpr bool TakesWeight(EntryForm form) {  // w, which kGelu may lack
  return form == EntryForm::kMixedGate || form == EntryForm::kGelu;
}

struct EntryFormName {
  const char* name;
  EntryForm form;
};
constexpr EntryFormName kEntryFormNames[] = {
    {"silu_gate", EntryForm::kSiluGate},
    {"sigmoid_gate", EntryForm::kSigmoidGate},
    {"power_gate", EntryForm::kPowerGate},
    {"elu1", EntryForm::kElu1},
    {"sigmoid", EntryForm::kSigmoid},
    {"log_sigmoid", EntryForm::kLogSigmoid},
    {"mixed_gate", EntryForm::kMixedGate},
    {"gelu", EntryForm::kGelu},
    {"square_relu", EntryForm::kSquareRelu},
};

/// [rows, width] of any float dtype; row r begins r * stride elements after
/// data. Null data: absent.
struct EntryRows {
  void* data = nullptr;
  int64_t stride = 0;
};

/// float32, bfloat16 or float16, one dtype for all; arithmetic in float32, one
/// rounding. sigma and exp are 0 below exp(-87).
struct EntryFormCall {
  EntryForm form = EntryForm::kSiluGate;
  DType dtype = DType::kF32;
  int64_t rows = 0, width = 0;
  float scale = 1.0f;  // kLogSigmoid and kPowerGate alone
  EntryRows x, y;
  const float* weight = nullptr;  // [width]
};

struct EntryFormGradients {
  EntryRows grad_out;
  EntryRows grad_x, grad_y;      // written; grad_y where there is y
  float* grad_weight = nullptr;  // [width]; written where not null
};

/// out may be x or y. Throws ShapeError for negative sizes, ArgumentError for
/// absent data. Allocates nothing; thread-safe; the same bits for any executor
/// and strides. O(rows width).
void EntryFormForward(const EntryFormCall& call, const EntryRows& out,
                      Executor& executor);

/// Bytes of 64-byte aligned scratch for the gradient: 0 without grad_weight.
size_t EntryFormGradientBytes(const EntryFormCall& call, bool grad_weight);

/// Throws like the forward pass. grad_x and grad_y may be inputs.
void EntryFormBackward(const EntryFormCall& call, const EntryFormGradients& g,
                       Executor& executor, void* workspace);

}  // namespace tarn
