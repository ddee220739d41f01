#include "weights/weight_file.h"

#include <algorithm>
#include <vector>

#include "core/safetensors.h"
#include "weights/continued_sink.h"

namespace tarn {
namespace {

constexpr int64_t kWritten = int64_t{1} << 22;  // numbers at a time

DType StoredAs(const WeightTensor& tensor, StoredWeights stored) {
  const bool matrix = tensor.shape.size() > 1;
  if (matrix && stored == StoredWeights::kF32) return DType::kF32;
  if (matrix && stored == StoredWeights::kBF16) return DType::kBF16;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    if (tensor.encoding == &EncodingOf(dtype)) return dtype;
  }
  return DType::kF32;
}

struct Written {
  const WeightTensor* tensor;
  DType dtype;
};

// In the order of the file's data.
std::vector<Written> Order(const WeightSource& source, StoredWeights stored) {
  std::vector<Written> order;
  for (const WeightTensor& tensor : source.tensors()) {
    order.push_back({&tensor, StoredAs(tensor, stored)});
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Written& a, const Written& b) {
                     return DTypeBytes(a.dtype) > DTypeBytes(b.dtype);
                   });
  return order;
}

// Rows in the encoding of the file.
void ReadAs(const WeightSource& source, const Written& written,
            WeightRange rows, std::vector<float>& wide,
            std::vector<uint8_t>& bytes) {
  const Encoding& encoding = EncodingOf(written.dtype);
  const int64_t count = rows.size() * written.tensor->columns();
  bytes.resize(static_cast<size_t>(encoding.Bytes(count)));
  if (written.tensor->encoding == &encoding) {
    source.ReadStoredRows(*written.tensor, rows, bytes.data());
    return;
  }
  wide.resize(static_cast<size_t>(count));
  source.ReadRows(*written.tensor, rows, wide.data());
  encoding.narrow(wide.data(), count, bytes.data());
}

}  // namespace

uint64_t WeightFileBytes(const WeightSource& source,
                         const WeightFileOptions& options) {
  uint64_t total = 0;
  for (const Written& one : Order(source, options.stored)) {
    total +=
        static_cast<uint64_t>(one.tensor->elements()) * DTypeBytes(one.dtype);
  }
  return total;
}

std::string WeightFileHead(const WeightSource& source,
                           const WeightFileOptions& options) {
  std::vector<TensorToWrite> list;
  for (const Written& one : Order(source, options.stored)) {
    list.push_back({one.tensor->name, one.dtype, one.tensor->shape, nullptr});
  }
  return SafetensorsHead(list, options.metadata);
}

void WriteWeights(const WeightSource& source, const WeightFileOptions& options,
                  ByteSink& to) {
  const std::string head = WeightFileHead(source, options);
  const uint64_t total = WeightFileBytes(source, options);
  ContinuedSink file(to, options.begun, head.size(), total, options.progress);
  file.Put(head.data(), head.size());
  std::vector<float> wide;
  std::vector<uint8_t> bytes;
  for (const Written& one : Order(source, options.stored)) {
    const int64_t width = std::max<int64_t>(1, one.tensor->columns());
    const int64_t most = std::max<int64_t>(1, kWritten / width);
    for (int64_t row = 0; row < one.tensor->rows(); row += most) {
      const WeightRange rows = {row, std::min(row + most, one.tensor->rows())};
      const auto size = static_cast<uint64_t>(
          EncodingOf(one.dtype).Bytes(rows.size() * one.tensor->columns()));
      if (file.Skip(size)) continue;
      ReadAs(source, one, rows, wide, bytes);
      file.Put(bytes.data(), bytes.size());
      file.Report();
    }
    source.Release(*one.tensor);
  }
}

}  // namespace tarn
