#include "core/safetensors_header.h"

#include <algorithm>
#include <tuple>

#include "core/json.h"
#include "core/text.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

// Values within one entry: a dozen for a tensor; the rest is for metadata.
constexpr uint64_t kMaxValuesPerEntry = uint64_t{1} << 16;

constexpr DType kSupported[] = {DType::kF32, DType::kBF16, DType::kF16};

// Reads entries one by one as the JSON reader completes them.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, uint64_t header_bytes,
               SafetensorsTypes types)
      : path_(path),
        data_offset_(kSafetensorsLengthBytes + header_bytes),
        types_(types) {}

  std::optional<Error> Read(const std::string& name, const Json& value) {
    if (name == kSafetensorsMetadataKey) return ReadMetadata(value);
    if (header_.tensors.size() == kMaxSafetensorsTensors) {
      return FormatError(path_,
                         StrCat("at most ", kMaxSafetensorsTensors, " tensors"),
                         "more");
    }
    return ReadTensor(name, value);
  }

  // Sorted ranges must tile the data area: an overlap would alias tensors, a
  // hole would hide bytes.
  std::optional<Error> CheckTiling(std::optional<uint64_t> data_bytes) {
    std::sort(header_.tensors.begin(), header_.tensors.end(),
              [](const TensorEntry& a, const TensorEntry& b) {
                return std::tie(a.begin, a.end, a.name) <
                       std::tie(b.begin, b.end, b.name);
              });
    uint64_t end = 0;
    for (const TensorEntry& entry : header_.tensors) {
      if (entry.begin != end) {
        return Bad(entry,
                   StrCat("data from byte ", end, " of the data area, ",
                          "where the tensor before it ends"),
                   StrCat(entry.begin));
      }
      end = entry.end;
    }
    if (data_bytes && end != *data_bytes) {
      return FormatError(
          StrCat(path_, ": byte ", data_offset_ + std::min(end, *data_bytes)),
          StrCat(end, " bytes of data, as the header says"),
          StrCat(*data_bytes));
    }
    header_.data_bytes = end;
    return std::nullopt;
  }

  SafetensorsHeader& header() { return header_; }

 private:
  FormatError Bad(const TensorEntry& entry, const std::string& wanted,
                  const std::string& given) const {
    return FormatError(StrCat(path_, ": tensor ", Quoted(entry.name),
                              " at byte ", data_offset_ + entry.begin),
                       wanted, given);
  }

  std::optional<Error> ReadMetadata(const Json& value) {
    const std::string where = StrCat(path_, ": ", kSafetensorsMetadataKey);
    if (!value.is_object()) {
      return FormatError(where, "an object", JsonGiven(value));
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        return FormatError(StrCat(where, ": ", Quoted(key)), "a text",
                           JsonGiven(text));
      }
      header_.metadata.emplace(key, text.get<std::string>());
    }
    return std::nullopt;
  }

  std::optional<Error> ReadTensor(const std::string& name, const Json& value) {
    TensorEntry entry;
    entry.name = name;
    if (!value.is_object()) return Bad(entry, "an object", JsonGiven(value));
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!value.contains(key)) {
        return Bad(entry, StrCat("the key ", key), "none");
      }
    }
    if (value.size() != 3) {
      return Bad(entry, "the keys dtype, shape and data_offsets",
                 StrCat(value.size(), " keys"));
    }
    // Offsets first: the messages after them can then say where.
    if (auto error = ReadOffsets(value["data_offsets"], entry)) return error;
    if (auto error = ReadDType(value["dtype"], entry)) return error;
    if (auto error = ReadShape(value["shape"], entry)) return error;
    header_.tensors.push_back(std::move(entry));
    return std::nullopt;
  }

  std::optional<Error> ReadOffsets(const Json& value, TensorEntry& entry) {
    const std::string wanted = "data_offsets [begin, end], begin <= end";
    if (!value.is_array() || value.size() != 2) {
      return Bad(entry, wanted, JsonGiven(value));
    }
    for (const Json& offset : value) {
      if (!offset.is_number_unsigned()) {
        return Bad(entry, wanted, JsonGiven(offset));
      }
    }
    const auto begin = value[0].get<uint64_t>();
    const auto end = value[1].get<uint64_t>();
    // Half of the range leaves room to add the offset of the data area.
    if (begin > end || end > INT64_MAX) {
      return Bad(entry, wanted, StrCat("[", begin, ", ", end, "]"));
    }
    entry.begin = begin;
    entry.end = end;
    return std::nullopt;
  }

  std::optional<Error> ReadDType(const Json& value, TensorEntry& entry) {
    for (const DType dtype : kSupported) {
      if (value == DTypeName(dtype)) {
        entry.dtype = dtype;
        return std::nullopt;
      }
    }
    const bool bytes = types_ == SafetensorsTypes::kNumbersAndBytes;
    if (bytes && value == "U8") {
      entry.is_bytes = true;
      return std::nullopt;
    }
    return Bad(entry,
               bytes ? "dtype F32, BF16, F16 or U8" : "dtype F32, BF16 or F16",
               JsonGiven(value));
  }

  std::optional<Error> ReadShape(const Json& value, TensorEntry& entry) {
    if (!value.is_array() || value.size() > kMaxSafetensorsRank) {
      return Bad(entry,
                 StrCat("a shape of at most ", kMaxSafetensorsRank, " sizes"),
                 value.is_array() ? StrCat(value.size()) : JsonGiven(value));
    }
    for (const Json& size : value) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX) {
        return Bad(entry, "sizes from 0 to 2^63 - 1", JsonGiven(size));
      }
      entry.shape.push_back(size.get<int64_t>());
    }
    const auto elements = CheckedElements(entry.shape);
    if (!elements) {
      return Bad(entry, "a shape whose bytes fit 63 bits",
                 ShapeText(entry.shape));
    }
    const uint64_t bytes = static_cast<uint64_t>(*elements) *
                           (entry.is_bytes ? 1 : DTypeBytes(entry.dtype));
    if (entry.end - entry.begin != bytes) {
      return Bad(entry,
                 StrCat(bytes, " bytes for ",
                        entry.is_bytes ? "U8" : DTypeName(entry.dtype), " ",
                        ShapeText(entry.shape)),
                 StrCat(entry.end - entry.begin));
    }
    return std::nullopt;
  }

  const std::string& path_;
  const uint64_t data_offset_;
  const SafetensorsTypes types_;
  SafetensorsHeader header_;
};

}  // namespace

std::optional<int64_t> CheckedElements(const std::vector<int64_t>& shape) {
  constexpr int64_t kMaxElements = INT64_MAX / 4;
  int64_t product = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      empty = true;
    } else if (size > kMaxElements / product) {
      return std::nullopt;
    } else {
      product *= size;
    }
  }
  return empty ? 0 : product;
}

Result<SafetensorsHeader> ParseSafetensorsHeader(
    const std::string& path, std::string_view json,
    std::optional<uint64_t> data_bytes, SafetensorsTypes types) {
  if (!json.starts_with('{')) {
    return FormatError(StrCat(path, ": byte ", kSafetensorsLengthBytes), "'{'",
                       json.empty() ? "nothing" : Quoted(json.substr(0, 1)));
  }
  HeaderReader reader(path, json.size(), types);
  const auto error = VisitStrictJson(
      json, path + ": header", kMaxSafetensorsHeader, kMaxValuesPerEntry,
      [&](const std::string& name, const Json& value) {
        return reader.Read(name, value);
      });
  if (error) return *error;
  if (auto bad = reader.CheckTiling(data_bytes)) return *bad;
  return std::move(reader.header());
}

}  // namespace tarn
