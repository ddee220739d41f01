// Element types that tensors and weight files hold.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn {

enum class DType : uint8_t { kF32, kBF16, kF16 };

/// Bytes of one element.
constexpr size_t DTypeBytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}

/// "F32", "BF16", "F16": the names safetensors uses.
constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
  }
  return "?";
}

}  // namespace tarn
