// What the parts of a model are made of, by the names of its weight file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/matmul/weight_matrix.h"

namespace tarn {

/// Rows of a matrix: a tensor, and the one with their bias (empty: none).
struct NamedRows {
  std::string weight, bias;
  int64_t rows = 0;
};

/// Throws FormatError for names that the source lacks.
class ModelTensors {
 public:
  virtual ~ModelTensors() = default;
  virtual bool Has(const std::string& name) const = 0;
  /// A tensor that the model keeps as float32.
  virtual std::vector<float> Vector(const std::string& name) = 0;
  /// The tensors below one another as one matrix of so many inputs.
  virtual WeightMatrix Matrix(const std::vector<NamedRows>& parts,
                              int64_t inputs) = 0;
  /// The matrices of a tensor [count, outputs, inputs] or [count * outputs,
  /// inputs].
  virtual std::vector<WeightMatrix> Matrices(const std::string& name,
                                             int64_t count, int64_t outputs,
                                             int64_t inputs) = 0;
};

}  // namespace tarn
