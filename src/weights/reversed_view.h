// A view backwards: the tensors that it reads, from those that it makes. What
// opens a published file then also writes one.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weights/weight_view.h"

namespace tarn {

/// A source of the tensors that parts are made of (WeightPart::Named). Holds
/// one of them in memory at a time, that read last, as float32: callers read
/// tensor by tensor. A tensor has the encoding of those that give it, F32 where
/// they differ or the encoding is one that is only read. A read throws
/// FormatError where a number is given by no tensor, or differently by two.
class ReversedView final : public WeightSource {
 public:
  /// view: for each tensor of `source` how it is made of the others. Throws
  /// ShapeError where a tensor is not in the source with its shape, or a part
  /// is named with two shapes; FormatError where one that holds a fixed number
  /// holds another.
  ReversedView(std::vector<WeightView::Tensor> view,
               std::shared_ptr<const WeightSource> source);
  ~ReversedView() override;

  std::string path() const override { return source_->path(); }
  /// The tensors that give it.
  std::string Where(const WeightTensor& tensor, int64_t element) const override;
  /// Frees the memory of the tensor read last.
  void Release(const WeightTensor& tensor) const override;

 private:
  void ReadPart(size_t index, WeightRange rows, WeightRange columns,
                float* out) const override;
  void ReadStoredPart(size_t index, WeightRange rows, WeightRange columns,
                      uint8_t* out) const override;
  /// Writes the rows of a tensor of the source that hold `name` to a sink.
  void Push(size_t from, const std::string& name, WeightSink& sink) const;
  const std::vector<float>& Numbers(size_t index) const;

  const std::shared_ptr<const WeightSource> source_;
  const std::vector<WeightView::Tensor> view_;
  std::vector<std::vector<size_t>> givers_;  // of tensors(), into view_
  mutable std::mutex mutex_;
  mutable std::vector<float> numbers_;  // of tensors()[held_]
  mutable size_t held_;
};

}  // namespace tarn
