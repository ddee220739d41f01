// Weight files for tests, and tensors whose numbers tell their positions.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/half.h"
#include "core/safetensors.h"
#include "weights/weight_source.h"

namespace tarn::testing {

/// A tensor in memory; number i is first + i, exact in every encoding while it
/// stays under 256.
struct TestTensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  float first = 0;

  int64_t elements() const {
    int64_t product = 1;
    for (const int64_t size : shape) product *= size;
    return product;
  }
  std::vector<float> Values() const {
    std::vector<float> values;
    for (int64_t i = 0; i < elements(); ++i) {
      values.push_back(first + static_cast<float>(i));
    }
    return values;
  }
  std::vector<uint8_t> Stored() const {
    std::vector<uint8_t> bytes;
    for (const float x : Values()) {
      const uint16_t half = dtype == DType::kBF16 ? F32ToBF16(x) : F32ToF16(x);
      const auto* from = dtype == DType::kF32
                             ? reinterpret_cast<const uint8_t*>(&x)
                             : reinterpret_cast<const uint8_t*>(&half);
      bytes.insert(bytes.end(), from, from + DTypeBytes(dtype));
    }
    return bytes;
  }
};

inline void WriteTestFile(const std::string& path,
                          const std::vector<TestTensor>& tensors) {
  std::vector<std::vector<uint8_t>> data;
  std::vector<TensorToWrite> list;
  for (const TestTensor& tensor : tensors) {
    data.push_back(tensor.Stored());
    list.push_back(
        {tensor.name, tensor.dtype, tensor.shape, data.back().data()});
  }
  WriteSafetensors(path, list, {});
}

/// All numbers of a tensor, by ReadRows.
inline std::vector<float> ValuesOf(const WeightSource& source,
                                   const std::string& name) {
  const WeightTensor* tensor = source.Find(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (tensor == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(tensor->elements()));
  source.ReadRows(*tensor, {0, tensor->rows()}, values.data());
  return values;
}

}  // namespace tarn::testing
