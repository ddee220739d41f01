// model.safetensors.index.json: which file holds which tensor. Read from
// memory, trusting nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tarn {

/// Bounds on what an index may ask for; the largest published models have some
/// hundred shards and a hundred thousand tensors.
inline constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 26;
inline constexpr size_t kMaxShards = 4096;

/// Tensor name -> file name, from the object "weight_map"; what else the index
/// holds is for readers and is not read. Every file name is that of a file next
/// to the index: no folders, and no other names for them. FormatError in one
/// line that begins with `where`. O(text).
Result<std::map<std::string, std::string>> ShardsFromJson(
    std::string_view text, const std::string& where);

}  // namespace tarn
