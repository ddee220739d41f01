// The oracle of entry_forms.h: one entry at a time, in double.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/entry_forms/entry_forms.h"

namespace tarn::reference {

/// y and weight are empty where the form lacks them; entry i reads
/// weight[i % weight.size()].
struct EntryFormProblem {
  EntryForm form;
  double scale = 1;
  std::vector<double> x, y, weight;
};

std::vector<double> EntryForms(const EntryFormProblem& p);

struct EntryFormGradient {
  std::vector<double> x, y, weight;
};
EntryFormGradient EntryFormsBackward(const EntryFormProblem& p,
                                     const std::vector<double>& grad_out);

}  // namespace tarn::reference
