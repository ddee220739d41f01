// Rounding with compensation of errors (Frantar et al. 2022, arXiv 2210.17323:
// GPTQ). Columns of a matrix are rounded one after the other, and the error of
// each is taken up by those that are not rounded yet, as the second moments of
// the inputs say. With H = X^T X / tokens + lambda mean(diag H) I and U upper,
// H^-1 = U^T U:
//   e = (w_j - round(w_j)) / U_jj,   w_l -= e U_jl for l > j
// Scales are those of the original numbers, so that columns can be taken by
// falling H_jj while each stays in its group.
#pragma once

#include <cstdint>
#include <vector>

#include "core/executor.h"
#include "core/groups/group_scheme.h"

namespace tarn {

/// Sums of x x^T over inputs [inputs], in double. One thread at a time.
class InputMoments {
 public:
  explicit InputMoments(int64_t inputs);

  /// Adds `count` inputs, `stride` floats apart. The bits do not depend on the
  /// executor, but on how inputs are cut into calls.
  void Add(const float* rows, int64_t stride, int64_t count,
           Executor& executor);
  /// Adds what Add keeps until there is more.
  void Finish(Executor& executor);

  int64_t inputs() const { return inputs_; }
  int64_t count() const { return count_; }
  /// [inputs, inputs], after Finish.
  const std::vector<double>& sums() const { return sums_; }

 private:
  const int64_t inputs_;
  int64_t count_ = 0, held_ = 0;
  std::vector<float> rows_;  // [kRows, inputs], held_ of them in use
  std::vector<double> sums_;
};

/// Rounds the rows of matrices that meet these inputs; each row by itself.
/// Immutable: any number of threads may round.
class Compensation {
 public:
  /// lambda > 0. A column without inputs is rounded to nearest. Throws
  /// NumericError for moments that are not finite. O(inputs^3); the memory of
  /// one matrix [inputs, inputs] of double.
  Compensation(const InputMoments& moments, double lambda, Executor& executor);

  /// blocks: [rows, scheme.RowBytes(inputs)] of weights [rows, inputs]. O(rows
  /// inputs^2).
  void Round(const float* weights, int64_t rows, const GroupScheme& scheme,
             uint8_t* blocks) const;

 private:
  const int64_t inputs_;
  std::vector<int64_t> order_;   // of the columns
  std::vector<double> factors_;  // U [inputs, inputs], columns in this order
};

}  // namespace tarn
