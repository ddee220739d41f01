// What is before the data of a GGUF file. Private to the gguf files.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weights/gguf/gguf_file.h"

namespace tarn {

/// A key's value as it is stored.
struct GgufValue {
  GgufType type = GgufType::kU8;  // kArray: of items
  GgufType item = GgufType::kU8;  // the type of its items, or its own
  uint64_t count = 1;
  std::string bytes;    // numbers, little-endian, or one text
  GgufStrings strings;  // of an array of texts
};

/// Bytes of a number of this type; 0 for texts and arrays.
uint64_t GgufTypeBytes(GgufType type);
/// "u32", as GGUF's documents call it.
const char* GgufTypeWord(GgufType type);

struct GgufHeader {
  uint32_t version = 0;
  std::vector<std::string> keys;  // in the file's order
  std::map<std::string, GgufValue, std::less<>> values;
  std::vector<GgufTensor> tensors;
  uint64_t data_offset = 0;
};

/// file: all bytes of it. Throws FormatError in one line that begins with
/// `path`.
GgufHeader ParseGgufHeader(const std::string& path,
                           std::span<const uint8_t> file);

}  // namespace tarn
