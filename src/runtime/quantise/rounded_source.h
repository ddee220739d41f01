// A source whose tensors are rounded as they are read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/executor.h"
#include "weights/weight_source.h"

namespace tarn {

/// Tensors by their names, and how each is to be stored.
using TensorEncodings = std::map<std::string, const Encoding*>;

/// Hands out blocks of a tensor in groups that were made beforehand, all of
/// them; null: to be rounded to nearest.
using MadeBlocks =
    std::function<const std::vector<uint8_t>*(const WeightTensor& tensor)>;

/// The tensors of `source` that `names` lists, in this order: those in
/// `encodings` rounded, others as they are. Numbers that cannot be rounded
/// (NaN, infinities, too large ones) throw FormatError when they are read. One
/// thread reads; rounding uses the executor, which must outlive it.
class RoundedSource final : public WeightSource {
 public:
  RoundedSource(std::shared_ptr<const WeightSource> source,
                const std::vector<std::string>& names,
                const TensorEncodings& encodings, MadeBlocks made,
                Executor& executor);

  std::string path() const override { return source_->path(); }
  std::string Where(const WeightTensor& tensor, int64_t element) const override;
  void Release(const WeightTensor& tensor) const override;

 private:
  void ReadPart(size_t index, WeightRange rows, WeightRange columns,
                float* out) const override;
  void ReadStoredPart(size_t index, WeightRange rows, WeightRange columns,
                      uint8_t* out) const override;
  // Whole rows of a tensor that is rounded.
  void Round(size_t index, WeightRange rows, uint8_t* out) const;

  const std::shared_ptr<const WeightSource> source_;
  const MadeBlocks made_;
  Executor& executor_;
  std::vector<const WeightTensor*> from_;  // of tensors(), in source_
};

/// Throws FormatError where a scale or minimum of a row's blocks is no number.
/// tensor: of `source`, for the message.
void RequireRounded(const WeightSource& source, const WeightTensor& tensor,
                    int64_t row, const Encoding& encoding,
                    const uint8_t* blocks);

}  // namespace tarn
