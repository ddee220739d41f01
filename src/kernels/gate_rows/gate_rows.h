// Functions of one row that stand around the recurrences with decay: the
// logarithms of decay factors as each family makes them, the activations of
// queries, keys and output gates, and rows of length 1.
//
// An entry's bits depend on that entry alone (those of UnitRow on its head's
// row), never on where it stands or on the length of the row. Values are exact
// to a few ulp over all floats, but sigma(x) and exp(x) below exp(-87) are 0.
// NaN stays NaN. Nothing allocates, everything is thread-safe.
#pragma once

#include <cstdint>

namespace tarn {

/// How the entry x of a row becomes g <= 0, the logarithm of a decay factor.
enum class GateForm {
  kSoftplus,     // g = -rates[h] softplus(x + bias): Mamba-2, GDN, KDA
  kLogSigmoid,   // g = scale log sigma(x + bias): GLA
  kBounded,      // g = log(l + (1 - l) sigma(x)), l = bias: HGRN2
  kExponential,  // g = -exp(x + bias): RWKV-6
  kSigmoid,      // g = -scale sigma(x + bias): RWKV-7
};

struct GateRow {
  GateForm form = GateForm::kSoftplus;
  int64_t heads = 0, width = 0;  // the row has heads * width entries
  const float* rates = nullptr;  // [heads], kSoftplus alone
  // [heads * width], null means zeros. kBounded: the lower bounds, in [0, 1).
  const float* bias = nullptr;
  float scale = 1.0f;  // kLogSigmoid and kSigmoid alone
};

/// g = the form of x; x, g: [heads * width], g may be x. keys, wanted with
/// kBounded and null otherwise: 1 - exp(g) = (1 - l) sigma(-x), which does not
/// cancel; it may not be x. Arguments are not checked.
void DecayGateRow(const GateRow& form, const float* x, float* g, float* keys);

/// y = x sigma(x), 0 at minus infinity. x, y: [n]; y may be x, in all of these.
void SiluRow(const float* x, int64_t n, float* y);

/// y = sigma(x) = 1 / (1 + exp(-x)).
void SigmoidRow(const float* x, int64_t n, float* y);

/// y = log(1 + exp(x + bias)); bias: [n], null means zeros.
void SoftplusRow(const float* x, const float* bias, int64_t n, float* y);

void TanhRow(const float* x, int64_t n, float* y);

/// `heads` rows of `width` side by side, in place: x / sqrt(sum(x^2) + eps).
void UnitRow(int64_t heads, int64_t width, float eps, float* x);

}  // namespace tarn
