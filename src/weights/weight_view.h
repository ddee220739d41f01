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

/// Takes numbers of the tensors that parts are made of: a view backwards.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  /// numbers: [rows, columns] of this tensor.
  virtual void Take(const WeightTensor& tensor, WeightRange rows,
                    WeightRange columns, const float* numbers) = 0;
  /// Numbers of a part that no tensor holds (WeightPart::Filled): all of them
  /// must be `value`.
  virtual void TakeFilled(float value, const float* numbers, int64_t count) = 0;
};

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
  /// Matrices next to one another, of equally many rows. At least one; throws
  /// ShapeError.
  static WeightPart Beside(const std::vector<WeightPart>& parts);

  /// A tensor of one number, which no source holds.
  static WeightPart Filled(std::vector<int64_t> shape, float value);
  /// The numbers times a factor, F32.
  WeightPart Scaled(float factor) const;
  /// The numbers plus a term, F32.
  WeightPart Shifted(float term) const;
  /// log(-x) of the numbers x, F32: A_log of A = -exp(A_log). Reading a number
  /// above 0, which no A_log gives, throws FormatError.
  WeightPart LogOfNegated() const;

  /// A tensor that is only written (Write): reading it throws ArgumentError.
  static WeightPart Named(std::string name, std::vector<int64_t> shape);
  /// A named tensor, perhaps scaled or shifted, in another shape. Throws
  /// ArgumentError for other parts.
  WeightPart Sized(std::vector<int64_t> shape) const;

  const std::vector<int64_t>& shape() const;
  const Encoding& encoding() const;

  /// Hands these rows to the tensors they come from, each number where a read
  /// would find it; factors and terms are undone. numbers: [rows, columns()].
  /// Throws ShapeError for rows outside the tensor.
  void Write(WeightRange rows, const float* numbers, WeightSink& sink) const;
  /// The rows among which those of a source tensor are; "": what is filled.
  WeightRange RowsOf(const std::string& tensor) const;
  /// The source tensors, each as often as it is read; of what is filled one
  /// without a name.
  std::vector<WeightTensor> Leaves() const;

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
