// Tensors under other names and in other shapes: what published files call
// theirs, made into what a model calls its own. A view copies nothing; each
// read goes to the source and touches only the rows and columns that are asked
// for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weights/weight_source.h"

namespace tarn {

/// A tensor made of a source's tensors. A value, cheap to copy; it keeps the
/// source alive. What is not single numbers in one encoding (a stack of several
/// encodings, columns that cut a block, a transposed matrix of blocks) has the
/// encoding F32.
class WeightPart {
 public:
  /// A tensor as it is. Throws ArgumentError for a name the source lacks.
  WeightPart(std::shared_ptr<const WeightSource> source,
             const std::string& name);

  /// The matrix [rows, columns] of any shape's numbers, in their order. Throws
  /// ShapeError when their number differs.
  WeightPart Reshaped(std::vector<int64_t> shape) const;
  /// The transpose of a matrix. Throws ShapeError for other ranks.
  WeightPart Transposed() const;
  /// Rows, or columns of a matrix; throw ShapeError outside the tensor.
  WeightPart Rows(WeightRange rows) const;
  WeightPart Columns(WeightRange columns) const;
  /// Tensors below one another, alike in all axes but the first. At least one;
  /// throws ShapeError.
  static WeightPart Stacked(const std::vector<WeightPart>& parts);

  /// A tensor of one number, which no source holds.
  static WeightPart Filled(std::vector<int64_t> shape, float value);
  /// The numbers times a factor, F32.
  WeightPart Scaled(float factor) const;
  /// The numbers plus a term, F32.
  WeightPart Shifted(float term) const;

  const std::vector<int64_t>& shape() const;
  const Encoding& encoding() const;

  struct Node;  // private to weight_nodes.cc

 private:
  friend class WeightView;
  explicit WeightPart(std::shared_ptr<const Node> node)
      : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

/// A source whose tensors are parts of others.
class WeightView final : public WeightSource {
 public:
  struct Tensor {
    std::string name;
    WeightPart part;
  };
  /// path: of messages about the whole view. Throws ArgumentError for a name
  /// that is given twice.
  WeightView(std::string path, std::vector<Tensor> tensors);
  ~WeightView() override;

  std::string path() const override { return path_; }
  /// Where the source stores it: the name there, and "as" the name here.
  std::string Where(const WeightTensor& tensor, int64_t element) const override;
  void Release(const WeightTensor& tensor) const override;

 private:
  void ReadPart(size_t index, WeightRange rows, WeightRange columns,
                float* out) const override;
  void ReadStoredPart(size_t index, WeightRange rows, WeightRange columns,
                      uint8_t* out) const override;

  const std::string path_;
  std::vector<WeightPart> parts_;  // of tensors()
};

}  // namespace tarn
