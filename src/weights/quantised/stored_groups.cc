#include "weights/quantised/stored_groups.h"

#include <cstring>
#include <optional>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "weights/quantised/group_encodings.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostTextBytes = uint64_t{1} << 27;
constexpr uint64_t kMostEntryValues = 16;  // of one tensor
constexpr size_t kLeastAxes = 2, kMostAxes = 8;
// Bytes of all schemes, a number with 4 bits or more, then fit 63 bits.
constexpr int64_t kMostNumbers = int64_t{1} << 58;
constexpr int64_t kHalfBytes = 2;  // of a float16

std::vector<int64_t> WithLast(std::vector<int64_t> shape, int64_t last) {
  shape.back() = last;
  return shape;
}

std::string SchemeWords() {
  std::string words;
  for (const Encoding& encoding : GroupEncodings()) {
    words += (words.empty() ? "one of " : ", ") + std::string(encoding.name);
  }
  return words;
}

std::optional<Error> ReadShape(const std::string& where, const Json& value,
                               WeightTensor& tensor) {
  const std::string axes =
      StrCat("a list of ", kLeastAxes, " to ", kMostAxes, " sizes from 1");
  if (!value.is_array() || value.size() < kLeastAxes ||
      value.size() > kMostAxes) {
    return FormatError(where, axes, JsonGiven(value));
  }
  int64_t numbers = 1;
  for (const Json& size : value) {
    const auto number = JsonInteger(size);
    if (!number || *number < 1) {
      return FormatError(where, axes, JsonGiven(size));
    }
    if (*number > kMostNumbers / numbers) {
      return FormatError(where, "at most 2^58 numbers", "more");
    }
    numbers *= *number;
    tensor.shape.push_back(*number);
  }
  const int64_t group = tensor.encoding->scheme->group;
  if (tensor.shape.size() > 2 && tensor.shape.back() % group != 0) {
    return FormatError(
        where,
        StrCat("whole groups of ", group, " in a tensor of more than two axes"),
        ShapeText(tensor.shape));
  }
  return std::nullopt;
}

Result<WeightTensor> ReadTensor(const std::string& name, const Json& value,
                                const std::string& where) {
  const bool whole = value.is_object() && value.size() == 2 &&
                     value.contains("scheme") && value.contains("shape");
  if (!whole) {
    return FormatError(where, "an object of the keys scheme and shape",
                       JsonGiven(value));
  }
  const Json& scheme = value["scheme"];
  WeightTensor tensor = {name, {}, nullptr};
  if (scheme.is_string()) {
    tensor.encoding = FindGroupEncoding(scheme.get_ref<const std::string&>());
  }
  if (tensor.encoding == nullptr) {
    return FormatError(where + ": scheme", SchemeWords(), JsonGiven(scheme));
  }
  if (auto error = ReadShape(where + ": shape", value["shape"], tensor)) {
    return *error;
  }
  return tensor;
}

}  // namespace

std::vector<int64_t> CodesShape(const WeightTensor& tensor) {
  const GroupScheme& scheme = *tensor.encoding->scheme;
  return WithLast(tensor.shape,
                  scheme.Blocks(tensor.shape.back()) * CodeBytes(scheme));
}

std::vector<int64_t> ScalesShape(const WeightTensor& tensor) {
  return WithLast(tensor.shape,
                  tensor.encoding->scheme->Blocks(tensor.shape.back()));
}

void SplitBlocks(const GroupScheme& scheme, const uint8_t* blocks,
                 int64_t count, uint8_t* codes, uint8_t* scales,
                 uint8_t* minima) {
  const int64_t code_bytes = CodeBytes(scheme);
  for (int64_t i = 0; i < count; ++i, blocks += scheme.BlockBytes()) {
    std::memcpy(scales + i * kHalfBytes, blocks, kHalfBytes);
    if (scheme.minimum) {
      std::memcpy(minima + i * kHalfBytes, blocks + kHalfBytes, kHalfBytes);
    }
    std::memcpy(codes + i * code_bytes, blocks + scheme.HeadBytes(),
                static_cast<size_t>(code_bytes));
  }
}

void JoinBlocks(const GroupScheme& scheme, int64_t count, const uint8_t* codes,
                const uint8_t* scales, const uint8_t* minima, uint8_t* blocks) {
  const int64_t code_bytes = CodeBytes(scheme);
  for (int64_t i = 0; i < count; ++i, blocks += scheme.BlockBytes()) {
    std::memcpy(blocks, scales + i * kHalfBytes, kHalfBytes);
    if (scheme.minimum) {
      std::memcpy(blocks + kHalfBytes, minima + i * kHalfBytes, kHalfBytes);
    }
    std::memcpy(blocks + scheme.HeadBytes(), codes + i * code_bytes,
                static_cast<size_t>(code_bytes));
  }
}

std::string QuantisedText(const std::vector<WeightTensor>& tensors) {
  Json text = Json::object();
  for (const WeightTensor& tensor : tensors) {
    text[tensor.name] = {
        {"scheme", GroupEncoding(*tensor.encoding->scheme).name},
        {"shape", tensor.shape}};
  }
  return text.dump();
}

Result<std::vector<WeightTensor>> QuantisedTensors(std::string_view text,
                                                   const std::string& where) {
  std::vector<WeightTensor> tensors;
  const auto error = VisitStrictJson(
      text, where, kMostTextBytes, kMostEntryValues,
      [&](const std::string& name, const Json& value) -> std::optional<Error> {
        Result<WeightTensor> tensor =
            ReadTensor(name, value, StrCat(where, ": ", Quoted(name, 200)));
        if (!tensor.ok()) return tensor.error();
        tensors.push_back(std::move(tensor).Take());
        return std::nullopt;
      });
  if (error) return *error;
  return tensors;
}

}  // namespace tarn
