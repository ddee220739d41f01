// The table of tensor types: ggml.h, enum ggml_type.
#include <iterator>

#include "core/error.h"
#include "core/groups/group_scheme.h"
#include "weights/gguf/encodings.h"

namespace tarn {
namespace {

struct TensorTypeRow {
  uint32_t type;
  const char* name;
  const Encoding* encoding = nullptr;  // null: not read
};

constexpr TensorTypeRow kTensorTypes[] = {
    {0, "F32", &kF32Encoding},
    {1, "F16", &kF16Encoding},
    {2, "Q4_0", &kQ40Encoding},
    {3, "Q4_1", &kQ41Encoding},
    {6, "Q5_0", &kQ50Encoding},
    {7, "Q5_1", &kQ51Encoding},
    {8, "Q8_0", &kQ80Encoding},
    {9, "Q8_1"},
    {10, "Q2_K", &kQ2KEncoding},
    {11, "Q3_K", &kQ3KEncoding},
    {12, "Q4_K", &kQ4KEncoding},
    {13, "Q5_K", &kQ5KEncoding},
    {14, "Q6_K", &kQ6KEncoding},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {20, "IQ4_NL", &kIq4NlEncoding},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {23, "IQ4_XS", &kIq4XsEncoding},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {29, "IQ1_M"},
    {30, "BF16", &kBF16Encoding},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {39, "MXFP4", &kMxfp4Encoding},
    {40, "NVFP4"},
    {41, "Q1_0"},
};

}  // namespace

const Encoding* GgufEncodingOf(uint32_t type) {
  for (const TensorTypeRow& row : kTensorTypes) {
    if (row.type == type) return row.encoding;
  }
  return nullptr;
}

uint32_t GgufTypeOf(const Encoding& encoding) {
  for (const TensorTypeRow& row : kTensorTypes) {
    if (row.encoding == &encoding) return row.type;
  }
  throw ArgumentError("GGUF: encoding of a tensor", "one of " + GgufTypeNames(),
                      encoding.name);
}

const Encoding* GgufEncodingLike(const Encoding& encoding) {
  for (const TensorTypeRow& row : kTensorTypes) {
    if (row.encoding == &encoding) return row.encoding;
    if (row.encoding != nullptr && row.encoding->scheme != nullptr &&
        encoding.scheme != nullptr &&
        *row.encoding->scheme == *encoding.scheme) {
      return row.encoding;
    }
  }
  return nullptr;
}

std::string GgufTypeName(uint32_t type) {
  for (const TensorTypeRow& row : kTensorTypes) {
    if (row.type == type) return row.name;
  }
  return std::to_string(type);
}

std::string GgufTypeNames() {
  std::string names;
  for (const TensorTypeRow& row : kTensorTypes) {
    if (row.encoding == nullptr) continue;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

}  // namespace tarn
