// The parts of tensors that a view is made of. Private to the weight_view and
// weight_nodes files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weights/weight_view.h"

namespace tarn {

// Reads of a node are like those of a source: ranges are valid, not empty and
// whole blocks of its encoding.
struct WeightPart::Node {
  WeightTensor tensor;  // its name is that of the first source tensor

  virtual ~Node() = default;
  virtual void Read(WeightRange rows, WeightRange columns,
                    float* out) const = 0;
  virtual void ReadStored(WeightRange rows, WeightRange columns,
                          uint8_t* out) const = 0;
  // Where the number in this row and column is stored.
  virtual std::string Where(int64_t row, int64_t column) const = 0;
  virtual void Release() const = 0;
  // What WeightPart says of them; ranges as for reads. By default a node cannot
  // be written: throws ArgumentError.
  virtual void Write(WeightRange rows, WeightRange columns,
                     const float* numbers, WeightSink& sink) const;
  virtual WeightRange RowsOf(const std::string& name) const = 0;
  virtual void AddLeaves(std::vector<WeightTensor>& leaves) const = 0;
  // Throws ArgumentError by default.
  virtual std::shared_ptr<const Node> Sized(std::vector<int64_t> shape) const;
};

using WeightNode = std::shared_ptr<const WeightPart::Node>;

/// A tensor of a source; throws ArgumentError for a name it lacks.
WeightNode WholeTensor(std::shared_ptr<const WeightSource> source,
                       const std::string& name);
/// One that is only written.
WeightNode WrittenTensor(std::string name, std::vector<int64_t> shape);
// The others do what WeightPart says; arguments are valid.
WeightNode RangeOf(WeightNode from, WeightRange rows, WeightRange columns);
WeightNode ReshapedTo(WeightNode from, std::vector<int64_t> shape);
WeightNode TransposeOf(WeightNode from);
WeightNode StackOf(std::vector<WeightNode> parts);
WeightNode BesideOf(std::vector<WeightNode> parts);
WeightNode ScaledBy(WeightNode from, float factor);
WeightNode ShiftedBy(WeightNode from, float term);
WeightNode LogOfNegatedOf(WeightNode from);
WeightNode FilledWith(std::vector<int64_t> shape, float value);

}  // namespace tarn
