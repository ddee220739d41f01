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
         ElementBytes(tensor);
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
    total += Bytes(tensor);  // two summands below 2^63 cannot wrap
    if (total > INT64_MAX) {
      throw ArgumentError("tensors", "at most 2^63 - 1 bytes in all", "more");
    }
  }
}

std::vector<const TensorToWrite*> DataOrder(
    const std::vector<TensorToWrite>& tensors, SafetensorsOrder wanted) {
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) order.push_back(&tensor);
  if (wanted == SafetensorsOrder::kAsGiven) return order;
  std::stable_sort(order.begin(), order.end(),
                   [](const TensorToWrite* a, const TensorToWrite* b) {
                     return ElementBytes(*a) > ElementBytes(*b);
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
    text += StrCat(
        separator, JsonText(tensor->name, "tensor name"), ":{\"dtype\":\"",
        tensor->is_bytes ? "U8" : DTypeName(tensor->dtype), "\",\"shape\":[",
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

std::string SafetensorsHead(const std::vector<TensorToWrite>& tensors,
                            const std::map<std::string, std::string>& metadata,
                            SafetensorsOrder order) {
  CheckTensors(tensors);
  const std::string header = HeaderText(DataOrder(tensors, order), metadata);
  if (header.size() > kMaxSafetensorsHeader) {
    throw ArgumentError(
        "tensors",
        StrCat("a header of at most ", kMaxSafetensorsHeader, " bytes"),
        StrCat(header.size()));
  }
  const uint64_t length = header.size();
  std::string head(reinterpret_cast<const char*>(&length), sizeof(length));
  return head += header;
}

void WriteSafetensors(const std::string& path,
                      const std::vector<TensorToWrite>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const std::string head = SafetensorsHead(tensors, metadata);
  for (const TensorToWrite& tensor : tensors) {
    if (Bytes(tensor) > 0 && tensor.data == nullptr) {
      throw ArgumentError("tensor " + Quoted(tensor.name), "data",
                          "a null pointer");
    }
  }
  AtomicFile file(path);
  file.Write(head.data(), head.size());
  for (const TensorToWrite* tensor :
       DataOrder(tensors, SafetensorsOrder::kLargestFirst)) {
    file.Write(tensor->data, Bytes(*tensor));
  }
  file.Commit();
}

}  // namespace tarn
