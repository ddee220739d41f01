// The oracle of decay_gate.h: one entry at a time, in double, by definition.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/decay_gate/decay_gate.h"

namespace tarn::reference {

/// x: rows of `bias.size()` entries; log_rates: [count], empty means zeros.
struct DecayGateProblem {
  GateForm form = GateForm::kSoftplus;
  double scale = 1;
  std::vector<double> x, bias, log_rates;
  double least = 0, most = INFINITY;  // of the steps
};

struct DecayGateResult {
  std::vector<double> gates, second;  // second: empty without one
};

DecayGateResult DecayGate(const DecayGateProblem& p);

/// Gradients in the place of the inputs. grad_second: empty means zeros.
DecayGateProblem DecayGateBackward(const DecayGateProblem& p,
                                   const std::vector<double>& grad_gates,
                                   const std::vector<double>& grad_second);

}  // namespace tarn::reference
