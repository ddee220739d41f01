// The product of matrices by its definition, in double.
#pragma once

#include <vector>

#include "kernels/gemm/gemm.h"

namespace tarn {

/// [rows, columns], dense; problem.c is not read.
std::vector<double> GemmRef(const GemmProblem& problem);

}  // namespace tarn
