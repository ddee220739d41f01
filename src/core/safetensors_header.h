// The header of a safetensors file, read from memory: bytes in, checked entries
// out. Private to safetensors*.cc and its fuzzing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/safetensors.h"

namespace tarn {

/// Bytes of the length field in front of the header.
inline constexpr uint64_t kSafetensorsLengthBytes = 8;
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;
/// Ten times as many as today's largest models; bounds the memory of a header.
inline constexpr size_t kMaxSafetensorsTensors = size_t{1} << 18;
inline constexpr size_t kMaxSafetensorsRank = 8;
inline constexpr const char* kSafetensorsMetadataKey = "__metadata__";

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in data order
  std::map<std::string, std::string> metadata;
  uint64_t data_bytes = 0;  // where the last tensor ends
};

/// Elements of a shape; empty when a size is negative or the bytes of the
/// tensor (4 an element) would not fit int64, zero sizes counted as one.
std::optional<int64_t> CheckedElements(const std::vector<int64_t>& shape);

/// Parses and validates. path: for messages. json: the header without its
/// length field. data_bytes: size of the data area that the ranges must tile
/// exactly; empty for a stream, whose end is not known yet.
Result<SafetensorsHeader> ParseSafetensorsHeader(
    const std::string& path, std::string_view json,
    std::optional<uint64_t> data_bytes,
    SafetensorsTypes types = SafetensorsTypes::kNumbers);

}  // namespace tarn
