#include "weights/weight_source.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "core/text.h"

namespace tarn {
namespace {

void CheckRange(const WeightTensor& tensor, const char* axis, WeightRange range,
                int64_t size, int64_t block) {
  if (range.begin >= 0 && range.begin <= range.end && range.end <= size &&
      range.begin % block == 0 &&
      (range.end % block == 0 || range.end == size)) {
    return;
  }
  throw ShapeError(
      StrCat("WeightSource: ", axis, " of ", Quoted(tensor.name)),
      StrCat("a range in [0, ", size, "]",
             block > 1 ? StrCat(" of whole blocks of ", block) : ""),
      StrCat("[", range.begin, ", ", range.end, ")"));
}

}  // namespace

int64_t WeightTensor::columns() const {
  int64_t product = 1;
  for (size_t i = 1; i < shape.size(); ++i) product *= shape[i];
  return product;
}

const WeightTensor* WeightSource::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void WeightSource::SetTensors(std::vector<WeightTensor> tensors) {
  tensors_ = std::move(tensors);
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    by_name_.emplace(tensors_[i].name, i);
  }
}

size_t WeightSource::IndexOf(const WeightTensor& tensor) const {
  // std::less orders pointers of different arrays as well.
  const std::less<const WeightTensor*> before;
  const WeightTensor* first = tensors_.data();
  if (before(&tensor, first) || !before(&tensor, first + tensors_.size())) {
    throw ArgumentError("WeightSource: tensor", "a tensor of this source",
                        Quoted(tensor.name));
  }
  return static_cast<size_t>(&tensor - first);
}

// Returns false when there is nothing to read.
bool WeightSource::CheckPart(const WeightTensor& tensor, WeightRange rows,
                             WeightRange columns) const {
  CheckRange(tensor, "rows", rows, tensor.rows(), 1);
  CheckRange(tensor, "columns", columns, tensor.columns(),
             tensor.encoding->numbers);
  return rows.size() > 0 && columns.size() > 0;
}

void WeightSource::Read(const WeightTensor& tensor, WeightRange rows,
                        WeightRange columns, float* out) const {
  const size_t index = IndexOf(tensor);
  if (CheckPart(tensor, rows, columns)) ReadPart(index, rows, columns, out);
}

void WeightSource::ReadStored(const WeightTensor& tensor, WeightRange rows,
                              WeightRange columns, uint8_t* out) const {
  const size_t index = IndexOf(tensor);
  if (CheckPart(tensor, rows, columns)) {
    ReadStoredPart(index, rows, columns, out);
  }
}

void WeightSource::ReadRows(const WeightTensor& tensor, WeightRange rows,
                            float* out) const {
  Read(tensor, rows, {0, tensor.columns()}, out);
}

void WeightSource::ReadStoredRows(const WeightTensor& tensor, WeightRange rows,
                                  uint8_t* out) const {
  ReadStored(tensor, rows, {0, tensor.columns()}, out);
}

void WeightSource::ReadBytes(const WeightTensor& tensor, int64_t begin,
                             int64_t count, uint8_t* out) const {
  const Encoding& encoding = *tensor.encoding;
  const int64_t row_bytes = encoding.Bytes(tensor.columns());
  if (begin < 0 || count < 0 || count > tensor.bytes() ||
      begin > tensor.bytes() - count) {
    throw ShapeError(StrCat("WeightSource: bytes of ", Quoted(tensor.name)),
                     StrCat("a range in [0, ", tensor.bytes(), "]"),
                     StrCat(count, " from ", begin));
  }
  std::vector<uint8_t> blocks;  // the whole blocks around a row's part
  while (count > 0) {
    const int64_t row = begin / row_bytes, at = begin % row_bytes;
    const int64_t part = std::min(count, row_bytes - at);
    const int64_t first = at / encoding.bytes;
    const int64_t last = (at + part + encoding.bytes - 1) / encoding.bytes;
    blocks.resize(static_cast<size_t>((last - first) * encoding.bytes));
    ReadStored(tensor, {row, row + 1},
               {first * encoding.numbers,
                std::min(last * encoding.numbers, tensor.columns())},
               blocks.data());
    std::memcpy(out, blocks.data() + (at - first * encoding.bytes),
                static_cast<size_t>(part));
    begin += part;
    count -= part;
    out += part;
  }
}

}  // namespace tarn
