#include <algorithm>
#include <cstring>
#include <set>

#include "core/file.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "core/safetensors_header.h"
#include "core/text.h"

namespace tarn {
namespace {

// Readers that map the file then find every tensor aligned for any vector.
constexpr size_t kAlignment = 64;

std::string JsonText(const std::string& text, const std::string& what) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw ArgumentError(what, "UTF-8", Quoted(text));
  }
}

uint64_t Bytes(const TensorToWrite& tensor) {
  return static_cast<uint64_t>(*CheckedElements(tensor.shape)) *
         DTypeBytes(tensor.dtype);
}

// What the reader would refuse is refused here, before a file is touched.
void CheckTensors(const std::vector<TensorToWrite>& tensors) {
  if (tensors.size() > kMaxSafetensorsTensors) {
    throw ArgumentError("tensors", StrCat("at most ", kMaxSafetensorsTensors),
                        StrCat(tensors.size()));
  }
  std::set<std::string> names;
  uint64_t total = 0;
  for (const TensorToWrite& tensor : tensors) {
    const std::string where = "tensor " + Quoted(tensor.name);
    if (tensor.name == kSafetensorsMetadataKey) {
      throw ArgumentError(where, "another name", "the key of the metadata");
    }
    if (!names.insert(tensor.name).second) {
      throw ArgumentError(where, "each name once", "a second tensor");
    }
    if (tensor.shape.size() > kMaxSafetensorsRank ||
        !CheckedElements(tensor.shape)) {
      throw ShapeError(where,
                       StrCat("at most ", kMaxSafetensorsRank,
                              " sizes >= 0 whose bytes fit 63 bits"),
                       ShapeText(tensor.shape));
    }
    const uint64_t bytes = Bytes(tensor);
    if (bytes > 0 && tensor.data == nullptr) {
      throw ArgumentError(where, "data", "a null pointer");
    }
    total += bytes;  // two summands below 2^63 cannot wrap
    if (total > INT64_MAX) {
      throw ArgumentError("tensors", "at most 2^63 - 1 bytes in all", "more");
    }
  }
}

// Largest elements first: every tensor then starts at a multiple of its size.
std::vector<const TensorToWrite*> DataOrder(
    const std::vector<TensorToWrite>& tensors) {
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const TensorToWrite* a, const TensorToWrite* b) {
                     return DTypeBytes(a->dtype) > DTypeBytes(b->dtype);
                   });
  return order;
}

std::string HeaderText(const std::vector<const TensorToWrite*>& order,
                       const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const char* separator = "";
  if (!metadata.empty()) {
    text += StrCat('"', kSafetensorsMetadataKey, "\":{");
    for (const auto& [key, value] : metadata) {
      text += StrCat(separator, JsonText(key, "metadata key"), ":",
                     JsonText(value, "metadata value"));
      separator = ",";
    }
    text += "}";
    separator = ",";
  }
  uint64_t begin = 0;
  for (const TensorToWrite* tensor : order) {
    const uint64_t end = begin + Bytes(*tensor);
    std::string shape;
    for (const int64_t size : tensor->shape) {
      shape += StrCat(shape.empty() ? "" : ",", size);
    }
    text += StrCat(separator, JsonText(tensor->name, "tensor name"),
                   ":{\"dtype\":\"", DTypeName(tensor->dtype), "\",\"shape\":[",
                   shape, "],\"data_offsets\":[", begin, ",", end, "]}");
    separator = ",";
    begin = end;
  }
  text += "}";
  const size_t unaligned = (kSafetensorsLengthBytes + text.size()) % kAlignment;
  if (unaligned != 0) text.append(kAlignment - unaligned, ' ');
  return text;
}

}  // namespace

void WriteSafetensors(const std::string& path,
                      const std::vector<TensorToWrite>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  CheckTensors(tensors);
  const auto order = DataOrder(tensors);
  const std::string header = HeaderText(order, metadata);
  if (header.size() > kMaxSafetensorsHeader) {
    throw ArgumentError(
        "tensors",
        StrCat("a header of at most ", kMaxSafetensorsHeader, " bytes"),
        StrCat(header.size()));
  }
  AtomicFile file(path);
  const uint64_t length = header.size();
  file.Write(&length, sizeof(length));
  file.Write(header.data(), header.size());
  for (const TensorToWrite* tensor : order) {
    file.Write(tensor->data, Bytes(*tensor));
  }
  file.Commit();
}

}  // namespace tarn
