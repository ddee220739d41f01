// The logarithm g <= 0 of a decay factor from a projected number x, as each
// family of recurrences makes it; u = x + bias, sigma(x) = 1 / (1 + exp(-x)):
//   kSoftplus     g = -rate softplus(u)            Mamba-2, GDN, KDA
//   kLogSigmoid   g = scale log sigma(u)           GLA
//   kBounded      g = log(l + (1 - l) sigma(x))    HGRN2, l = bias in [0, 1)
//   kExponential  g = -exp(u)                      RWKV-6
//   kSigmoid      g = -scale sigma(rate u)         RWKV-7, KDA with a bound
// kSoftplus and kBounded have a second result: the step softplus(u), which
// multiplies the values of Mamba-2, and the key 1 - exp(g) = (1 - l) sigma(-x).
// A step may be kept between two limits, in its gate as well; beyond them u has
// no gradient.
// (arXiv 2405.21060, 2412.06464, 2510.26692, 2312.06635, 2404.07904,
// 2404.05892, 2503.14456.) Gradients, with dg and ds those of the results:
//   kSoftplus     du = (ds - rate dg) sigma(u)
//   kLogSigmoid   du = scale dg sigma(-u)
//   kBounded      dx = key sigma(x) (dg / f - ds), dl = sigma(-x) (dg / f -
//   ds),
//                 f = exp(g)
//   kExponential  du = dg g
//   kSigmoid      du = -scale rate dg sigma(rate u) sigma(-rate u)
// and by the logarithm of a rate dg g, or du u.
// Nothing cancels: values are exact to a few ulp over all floats, but sigma and
// exp below exp(-87) are 0. NaN stays NaN and in its entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/dtype.h"
#include "core/executor.h"

namespace tarn {

enum class GateForm {
  kSoftplus,
  kLogSigmoid,
  kBounded,
  kExponential,
  kSigmoid,
};

constexpr bool TakesRates(GateForm form) {
  return form == GateForm::kSoftplus || form == GateForm::kSigmoid;
}
constexpr bool HasSecond(GateForm form) {
  return form == GateForm::kSoftplus || form == GateForm::kBounded;
}

struct GateFormName {
  const char* name;
  GateForm form;
};
constexpr GateFormName kGateFormNames[] = {
    {"softplus", GateForm::kSoftplus}, {"log_sigmoid", GateForm::kLogSigmoid},
    {"bounded", GateForm::kBounded},   {"exponential", GateForm::kExponential},
    {"sigmoid", GateForm::kSigmoid},
};

/// What all rows of a call share.
struct GateRow {
  GateForm form = GateForm::kSoftplus;
  int64_t count = 0;             // entries of a row
  const float* rates = nullptr;  // [count], where TakesRates; null means ones
  const float* bias = nullptr;   // [count]; null means zeros
  float scale = 1.0f;            // kLogSigmoid and kSigmoid alone
  // Limits of the steps, of kSoftplus alone; least <= most.
  float least = 0.0f, most = std::numeric_limits<float>::infinity();

  bool limited() const {
    return least > 0 || most < std::numeric_limits<float>::infinity();
  }
};

/// One row of floats: x, g, second: [count]; g may be x. second: null, or
/// written where HasSecond; it may not be x. An entry's bits depend on that
/// entry alone. Arguments are not checked; allocates nothing, thread-safe.
void DecayGateRow(const GateRow& gate, const float* x, float* g, float* second);

struct DecayGateCall {
  GateRow gate;
  DType dtype = DType::kF32;  // of x, of keys and of the gradient by x
  int64_t rows = 0;
  const void* x = nullptr;
  int64_t stride = 0;  // elements from one row of x to the next
};

/// gates [rows, count], float32 whatever the dtype, as their sums decide over a
/// whole sequence. second: [rows, count] or null; steps are float32, keys of
/// the dtype. Throws ShapeError for negative sizes, ArgumentError for absent
/// data. Allocates nothing; thread-safe; the same bits for any executor.
void DecayGateForward(const DecayGateCall& call, float* gates, void* second,
                      Executor& executor);

struct DecayGateGradients {
  const float* grad_gates = nullptr;  // [rows, count]; null means zeros
  const void* grad_second = nullptr;  // as second; null means zeros
  void* grad_x = nullptr;             // dense [rows, count]; written
  float* grad_bias = nullptr;         // [count]; written where not null
  float* grad_log_rates = nullptr;    // the same
};

/// Bytes of 64-byte aligned scratch for the gradient.
size_t DecayGateGradientBytes(const DecayGateCall& call);

/// Throws like the forward pass.
void DecayGateBackward(const DecayGateCall& call, const DecayGateGradients& g,
                       Executor& executor, void* workspace);

}  // namespace tarn
