#include "weights/weight_file.h"

#include <algorithm>
#include <vector>

#include "core/safetensors.h"
#include "weights/continued_sink.h"
#include "weights/quantised/stored_groups.h"

namespace tarn {
namespace {

constexpr int64_t kWritten = int64_t{1} << 22;  // numbers at a time

// Whether a tensor is written in groups.
bool InGroups(const WeightTensor& tensor, StoredWeights stored) {
  return tensor.encoding->scheme != nullptr &&
         stored == StoredWeights::kAsTheyAre && tensor.shape.size() > 1;
}

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
  bool groups;
  DType dtype;  // of one that is not in groups

  // What the file holds for it, in the order of the data.
  std::vector<TensorToWrite> InFile() const {
    if (!groups) return {{tensor->name, dtype, tensor->shape}};
    const std::vector<int64_t> scales = ScalesShape(*tensor);
    std::vector<TensorToWrite> parts = {
        {tensor->name + kCodesEnd, DType::kF32, CodesShape(*tensor), nullptr,
         true},
        {tensor->name + kScalesEnd, DType::kF16, scales}};
    if (tensor->encoding->scheme->minimum) {
      parts.push_back({tensor->name + kMinimaEnd, DType::kF16, scales});
    }
    return parts;
  }
  uint64_t Bytes() const {
    return static_cast<uint64_t>(
        groups ? tensor->bytes() : EncodingOf(dtype).Bytes(tensor->elements()));
  }
};

// In the order of the file's data.
std::vector<Written> Order(const WeightSource& source, StoredWeights stored) {
  std::vector<Written> order;
  for (const WeightTensor& tensor : source.tensors()) {
    order.push_back(
        {&tensor, InGroups(tensor, stored), StoredAs(tensor, stored)});
  }
  const auto rank = [](const Written& one) {
    return one.groups ? 0 : DTypeBytes(one.dtype);
  };
  std::stable_sort(
      order.begin(), order.end(),
      [&](const Written& a, const Written& b) { return rank(a) > rank(b); });
  return order;
}

// Puts what the file gets, from its beginning.
class FileWriter {
 public:
  FileWriter(const WeightSource& source, const WeightFileOptions& options,
             uint64_t head, ByteSink& to)
      : source_(source),
        file_(to, options.begun, head, WeightFileBytes(source, options),
              options.progress) {}

  void Put(const void* data, uint64_t size) { file_.Put(data, size); }

  void PutNumbers(const Written& one) {
    const Encoding& encoding = EncodingOf(one.dtype);
    ForRows(*one.tensor, [&](WeightRange rows) {
      const int64_t count = rows.size() * one.tensor->columns();
      const auto size = static_cast<uint64_t>(encoding.Bytes(count));
      if (file_.Skip(size)) return;
      bytes_.resize(static_cast<size_t>(size));
      if (one.tensor->encoding == &encoding) {
        source_.ReadStoredRows(*one.tensor, rows, bytes_.data());
      } else {
        wide_.resize(static_cast<size_t>(count));
        source_.ReadRows(*one.tensor, rows, wide_.data());
        encoding.narrow(wide_.data(), count, bytes_.data());
      }
      Put(bytes_.data(), size);
      file_.Report();
    });
  }

  // Codes as they come, then the scales that came with them.
  void PutGroups(const Written& one) {
    if (file_.Skip(one.Bytes())) return;
    const GroupScheme& scheme = *one.tensor->encoding->scheme;
    std::vector<uint8_t> codes, scales, minima;
    ForRows(*one.tensor, [&](WeightRange rows) {
      const int64_t row_bytes =
          one.tensor->encoding->Bytes(one.tensor->columns());
      const int64_t count = rows.size() * (row_bytes / scheme.BlockBytes());
      bytes_.resize(static_cast<size_t>(rows.size() * row_bytes));
      source_.ReadStoredRows(*one.tensor, rows, bytes_.data());
      codes.resize(static_cast<size_t>(count * CodeBytes(scheme)));
      const size_t before = scales.size();
      scales.resize(before + static_cast<size_t>(2 * count));
      if (scheme.minimum) minima.resize(scales.size());
      SplitBlocks(scheme, bytes_.data(), count, codes.data(),
                  scales.data() + before,
                  scheme.minimum ? minima.data() + before : nullptr);
      Put(codes.data(), codes.size());
      file_.Report();
    });
    Put(scales.data(), scales.size());
    Put(minima.data(), minima.size());
    file_.Report();
  }

 private:
  // f(some rows) for all of a tensor.
  template <typename F>
  static void ForRows(const WeightTensor& tensor, const F& f) {
    const int64_t width = std::max<int64_t>(1, tensor.columns());
    const int64_t most = std::max<int64_t>(1, kWritten / width);
    for (int64_t row = 0; row < tensor.rows(); row += most) {
      f(WeightRange{row, std::min(row + most, tensor.rows())});
    }
  }

  const WeightSource& source_;
  ContinuedSink file_;
  std::vector<float> wide_;
  std::vector<uint8_t> bytes_;
};

}  // namespace

uint64_t WeightFileBytes(const WeightSource& source,
                         const WeightFileOptions& options) {
  uint64_t total = 0;
  for (const Written& one : Order(source, options.stored)) {
    total += one.Bytes();
  }
  return total;
}

std::string WeightFileHead(const WeightSource& source,
                           const WeightFileOptions& options) {
  std::vector<TensorToWrite> list;
  std::vector<WeightTensor> groups;
  for (const Written& one : Order(source, options.stored)) {
    if (one.groups) groups.push_back(*one.tensor);
    for (TensorToWrite& tensor : one.InFile()) {
      list.push_back(std::move(tensor));
    }
  }
  std::map<std::string, std::string> metadata = options.metadata;
  if (!groups.empty()) metadata[kQuantisedKey] = QuantisedText(groups);
  return SafetensorsHead(list, metadata, SafetensorsOrder::kAsGiven);
}

void WriteWeights(const WeightSource& source, const WeightFileOptions& options,
                  ByteSink& to) {
  const std::string head = WeightFileHead(source, options);
  FileWriter writer(source, options, head.size(), to);
  writer.Put(head.data(), head.size());
  for (const Written& one : Order(source, options.stored)) {
    if (one.groups) {
      writer.PutGroups(one);
    } else {
      writer.PutNumbers(one);
    }
    source.Release(*one.tensor);
  }
}

}  // namespace tarn
