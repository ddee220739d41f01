// GGUF files for tests, byte by byte: no code of the reader or the writer.
#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

namespace tarn::testing {

template <typename T>
std::string Le(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

inline std::string GgufText(const std::string& text) {
  return Le<uint64_t>(text.size()) + text;
}

/// Parts of a file, each of which a test may replace.
struct GgufBytes {
  struct Key {
    std::string name;
    uint32_t type;
    std::string value;
  };
  struct Tensor {
    std::string name;
    std::vector<int64_t> axes;  // the fastest first, as files have them
    uint32_t type = 0;
    std::string data;
    int64_t offset = -1;  // -1: the right one
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<Key> keys;
  std::vector<Tensor> tensors;
  int64_t tensor_count = -1, key_count = -1;  // -1: as many as there are
  uint64_t alignment = 32;
  bool padded_end = true;

  static Key U32(const std::string& name, uint32_t value) {
    return {name, 4, Le(value)};
  }
  static Key Text(const std::string& name, const std::string& value) {
    return {name, 8, GgufText(value)};
  }
  /// item: the number of the items' type.
  static Key Array(const std::string& name, uint32_t item, uint64_t count,
                   const std::string& items) {
    return {name, 9, Le(item) + Le(count) + items};
  }

  uint64_t Padded(uint64_t size) const {
    return (size + alignment - 1) / alignment * alignment;
  }
  std::string Make() const {
    std::string file = magic + Le(version);
    file += Le<int64_t>(tensor_count < 0 ? std::ssize(tensors) : tensor_count);
    file += Le<int64_t>(key_count < 0 ? std::ssize(keys) : key_count);
    for (const Key& key : keys) {
      file += GgufText(key.name) + Le(key.type) + key.value;
    }
    uint64_t at = 0;
    for (const Tensor& tensor : tensors) {
      file +=
          GgufText(tensor.name) + Le(static_cast<uint32_t>(tensor.axes.size()));
      for (const int64_t axis : tensor.axes) file += Le(axis);
      file += Le(tensor.type);
      file += Le<uint64_t>(
          tensor.offset < 0 ? at : static_cast<uint64_t>(tensor.offset));
      at += Padded(tensor.data.size());
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      file.resize(Padded(file.size()), '\0');
      file += tensors[i].data;
    }
    if (padded_end && !tensors.empty()) {
      file.resize(Padded(file.size()), '\0');
    }
    return file;
  }
};

}  // namespace tarn::testing
