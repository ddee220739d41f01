#include "weights/gguf/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "core/text.h"
#include "weights/gguf/encodings.h"

static_assert(std::endian::native == std::endian::little,
              "GGUF is little-endian and is read without swapping");

namespace tarn {
namespace {

// The least that an entry takes: key: length of its name, type, one byte;
// tensor: length of its name, rank, type, offset; item: its length.
constexpr uint64_t kLeastKey = 13, kLeastTensor = 24, kLeastText = 8;
constexpr uint64_t kMaxItemText = uint64_t{1} << 16;  // of an array: a token
constexpr uint64_t kUsualAlignment = 32;
constexpr int64_t kLeastAlignment = 8, kMostAlignment = 1 << 16;
constexpr const char* kAlignmentKey = "general.alignment";

struct ValueTypeRow {
  const char* word;
  uint64_t bytes;  // of one number
};
constexpr ValueTypeRow kValueTypes[] = {
    {"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},  {"u32", 4},
    {"i32", 4}, {"f32", 4}, {"bool", 1}, {"text", 0}, {"array", 0},
    {"u64", 8}, {"i64", 8}, {"f64", 8}};
constexpr uint32_t kValueTypeCount = std::size(kValueTypes);

// Reads a file from its beginning on; what is missing is an error.
class Cursor {
 public:
  Cursor(const std::string& path, std::span<const uint8_t> file)
      : path_(path), file_(file) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return file_.size() - at_; }

  template <typename T>
  T Number(const char* what) {
    T value;
    Need(sizeof(T), what);
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string_view Bytes(uint64_t count, const char* what) {
    Need(count, what);
    const char* from = reinterpret_cast<const char*>(file_.data()) + at_;
    at_ += count;
    return {from, static_cast<size_t>(count)};
  }
  std::string_view Text(uint64_t most, const char* what) {
    const uint64_t begin = at_;
    const auto length = Number<uint64_t>(what);
    if (length > std::min(most, left())) {
      Refuse(begin,
             StrCat("a length of ", what, " up to ", std::min(most, left())),
             StrCat(length));
    }
    return Bytes(length, what);
  }
  // A number of entries that the rest of the file has room for.
  uint64_t Count(uint64_t most, uint64_t least_bytes, const char* what) {
    const uint64_t begin = at_;
    const auto count = Number<uint64_t>(what);
    const uint64_t bound = std::min(most, left() / least_bytes);
    if (count > bound) {
      Refuse(begin, StrCat("at most ", bound, " ", what), StrCat(count));
    }
    return count;
  }
  [[noreturn]] void Refuse(uint64_t at, const std::string& wanted,
                           const std::string& given) const {
    throw FormatError(StrCat(path_, ": byte ", at), wanted, given);
  }

 private:
  void Need(uint64_t count, const char* what) const {
    if (count <= left()) return;
    Refuse(at_, StrCat(count, " bytes of ", what), StrCat(left(), " bytes"));
  }

  const std::string& path_;
  const std::span<const uint8_t> file_;
  uint64_t at_ = 0;
};

GgufType ReadType(Cursor& from, const std::string& key) {
  const uint64_t begin = from.at();
  const auto type = from.Number<uint32_t>("the type of a value");
  if (type >= kValueTypeCount) {
    from.Refuse(begin,
                StrCat("a type of value from 0 to ", kValueTypeCount - 1,
                       " of key ", Quoted(key)),
                StrCat(type));
  }
  return static_cast<GgufType>(type);
}

void CheckBools(Cursor& from, uint64_t begin, const std::string& key,
                std::string_view bytes) {
  for (const char byte : bytes) {
    if (byte == 0 || byte == 1) continue;
    from.Refuse(begin, StrCat("0 or 1 as a bool of key ", Quoted(key)),
                StrCat(static_cast<int>(static_cast<uint8_t>(byte))));
  }
}

GgufValue ReadValue(Cursor& from, const std::string& key) {
  GgufValue value;
  value.type = value.item = ReadType(from, key);
  if (value.type == GgufType::kArray) {
    const uint64_t at = from.at();
    value.item = ReadType(from, key);
    if (value.item == GgufType::kArray) {
      from.Refuse(at,
                  StrCat("items of key ", Quoted(key), " that are no arrays"),
                  "arrays");
    }
    const uint64_t bytes = GgufTypeBytes(value.item);
    value.count = from.Count(kMaxGgufHeader, bytes == 0 ? kLeastText : bytes,
                             "items of an array");
    if (bytes == 0) {
      for (uint64_t i = 0; i < value.count; ++i) {
        value.strings.Add(from.Text(kMaxItemText, "a text of an array"));
      }
      return value;
    }
  } else if (value.type == GgufType::kString) {
    value.bytes = from.Text(kMaxGgufHeader, "a text");
    return value;
  }
  const uint64_t begin = from.at();
  value.bytes =
      from.Bytes(value.count * GgufTypeBytes(value.item), "a key's value");
  if (value.item == GgufType::kBool) CheckBools(from, begin, key, value.bytes);
  return value;
}

void ReadKeys(Cursor& from, uint64_t count, GgufHeader& to) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t begin = from.at();
    std::string key(from.Text(kMaxGgufKeyBytes, "the name of a key"));
    if (key.empty()) from.Refuse(begin, "the name of a key", "an empty one");
    if (to.values.contains(key)) {
      from.Refuse(begin, "keys that occur once",
                  StrCat("a second ", Quoted(key)));
    }
    GgufValue value = ReadValue(from, key);
    if (from.at() > kMaxGgufHeader) {
      from.Refuse(begin, StrCat("keys within ", kMaxGgufHeader, " bytes"),
                  "more");
    }
    to.keys.push_back(key);
    to.values.emplace(std::move(key), std::move(value));
  }
}

uint64_t AlignmentOf(const std::string& path, const GgufHeader& header) {
  const auto found = header.values.find(kAlignmentKey);
  if (found == header.values.end()) return kUsualAlignment;
  const GgufValue& value = found->second;
  uint32_t alignment = 0;
  if (value.type == GgufType::kU32) {
    std::memcpy(&alignment, value.bytes.data(), sizeof(alignment));
  }
  if (std::has_single_bit(alignment) && alignment >= kLeastAlignment &&
      alignment <= kMostAlignment) {
    return alignment;
  }
  throw FormatError(StrCat(path, ": key '", kAlignmentKey, "'"),
                    StrCat("a power of two from ", kLeastAlignment, " to ",
                           kMostAlignment, " as u32"),
                    value.type == GgufType::kU32 ? StrCat(alignment)
                                                 : GgufTypeWord(value.type));
}

// Empty where it is 2^64 or more.
std::optional<uint64_t> Product(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Axes as the file has them, the fastest first. Numbers and bytes fit into
// int64, with axes of 0 too.
void ReadAxes(Cursor& from, GgufTensor& tensor) {
  const uint64_t begin = from.at();
  const auto rank = from.Number<uint32_t>("the rank of a tensor");
  if (rank > kMaxGgufAxes) {
    from.Refuse(begin, StrCat("a tensor of up to ", kMaxGgufAxes, " axes"),
                StrCat(rank));
  }
  uint64_t product = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const uint64_t at = from.at();
    const auto size = from.Number<int64_t>("an axis of a tensor");
    const auto next =
        Product(product, static_cast<uint64_t>(std::max<int64_t>(size, 1)));
    if (size < 0 || !next || *next > INT64_MAX) {
      from.Refuse(at,
                  StrCat("sizes of tensor ", Quoted(tensor.name),
                         " from 0 on with a product below 2^63"),
                  StrCat(size));
    }
    product = *next;
    tensor.shape.push_back(size);
  }
}

void ReadEncoding(Cursor& from, GgufTensor& tensor) {
  const uint64_t begin = from.at();
  const auto type = from.Number<uint32_t>("the type of a tensor");
  tensor.encoding = GgufEncodingOf(type);
  if (tensor.encoding == nullptr) {
    from.Refuse(begin,
                StrCat("a type of tensor ", Quoted(tensor.name),
                       " that tarn reads (", GgufTypeNames(), ")"),
                GgufTypeName(type));
  }
  // Vectors hold single numbers in every file of llama.cpp.
  if (tensor.shape.size() < 2 && tensor.encoding->numbers > 1) {
    from.Refuse(begin,
                StrCat("single numbers in tensor ", Quoted(tensor.name),
                       ", which is no matrix"),
                tensor.encoding->name);
  }
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.front();
  if (row % tensor.encoding->numbers != 0) {
    from.Refuse(begin,
                StrCat("rows of tensor ", Quoted(tensor.name),
                       " of whole blocks of ", tensor.encoding->numbers,
                       ", as ", tensor.encoding->name, " has them"),
                StrCat(row, " numbers"));
  }
}

// Bytes of the data, with which the checked axes cannot wrap around: at most 4
// bytes a number.
uint64_t BytesOf(const Cursor& from, uint64_t begin, const GgufTensor& tensor,
                 uint64_t file_bytes) {
  uint64_t numbers = 1;
  for (const int64_t size : tensor.shape) {
    numbers *= static_cast<uint64_t>(size);
  }
  const auto blocks = numbers / static_cast<uint64_t>(tensor.encoding->numbers);
  const auto bytes =
      Product(blocks, static_cast<uint64_t>(tensor.encoding->bytes));
  if (!bytes || *bytes > file_bytes) {
    from.Refuse(begin,
                StrCat("a tensor ", Quoted(tensor.name), " of up to the ",
                       file_bytes, " bytes of the file"),
                bytes ? StrCat(*bytes) : "2^64 or more");
  }
  return *bytes;
}

void ReadTensors(Cursor& from, uint64_t count, uint64_t alignment,
                 uint64_t file_bytes, GgufHeader& to) {
  uint64_t sum = 0;  // of padded sizes
  for (uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    const uint64_t begin = from.at();
    tensor.name = from.Text(kMaxGgufNameBytes, "the name of a tensor");
    if (tensor.name.empty()) {
      from.Refuse(begin, "the name of a tensor", "an empty one");
    }
    ReadAxes(from, tensor);
    ReadEncoding(from, tensor);
    tensor.bytes = BytesOf(from, begin, tensor, file_bytes);
    const uint64_t at = from.at();
    tensor.begin = from.Number<uint64_t>("the offset of a tensor");
    if (tensor.begin != sum) {
      from.Refuse(at,
                  StrCat("offset ", sum, " of tensor ", Quoted(tensor.name),
                         ", where the one before it ends"),
                  StrCat(tensor.begin));
    }
    // Both are at most file_bytes here, and the padding is small.
    sum += (tensor.bytes + alignment - 1) / alignment * alignment;
    if (tensor.begin + tensor.bytes > file_bytes) {
      from.Refuse(begin,
                  StrCat("data of tensor ", Quoted(tensor.name),
                         " within the file's ", file_bytes, " bytes"),
                  StrCat("data up to byte ", tensor.begin + tensor.bytes,
                         " of the data area"));
    }
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    to.tensors.push_back(std::move(tensor));
  }
}

void CheckNames(const std::string& path, const GgufHeader& header) {
  std::vector<std::string_view> names;
  names.reserve(header.tensors.size());
  for (const GgufTensor& tensor : header.tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto same = std::adjacent_find(names.begin(), names.end());
  if (same == names.end()) return;
  throw FormatError(StrCat(path, ": tensors"), "names that occur once",
                    StrCat("a second ", Quoted(*same)));
}

uint32_t ReadBegin(Cursor& from) {
  constexpr std::string_view kMagic = "GGUF";
  const std::string_view magic = from.Bytes(kMagic.size(), "'GGUF'");
  if (magic != kMagic) from.Refuse(0, "'GGUF'", Quoted(magic));
  const auto version = from.Number<uint32_t>("the version");
  if (version == 2 || version == 3) return version;
  const bool swapped = (version & 0xffff) == 0 && version != 0;
  from.Refuse(4, "version 2 or 3",
              swapped ? "a big-endian file" : StrCat(version));
}

}  // namespace

uint64_t GgufTypeBytes(GgufType type) {
  return kValueTypes[static_cast<uint32_t>(type)].bytes;
}

const char* GgufTypeWord(GgufType type) {
  return kValueTypes[static_cast<uint32_t>(type)].word;
}

GgufHeader ParseGgufHeader(const std::string& path,
                           std::span<const uint8_t> file) {
  Cursor from(path, file);
  GgufHeader header;
  header.version = ReadBegin(from);
  const uint64_t tensors = from.Count(kMaxGgufTensors, kLeastTensor, "tensors");
  const uint64_t keys = from.Count(kMaxGgufKeys, kLeastKey, "keys");
  ReadKeys(from, keys, header);
  const uint64_t alignment = AlignmentOf(path, header);
  ReadTensors(from, tensors, alignment, file.size(), header);
  CheckNames(path, header);
  header.data_offset = (from.at() + alignment - 1) / alignment * alignment;
  if (header.tensors.empty()) return header;
  const GgufTensor& last = header.tensors.back();
  const uint64_t end = header.data_offset + last.begin + last.bytes;
  if (end > file.size()) {
    throw FormatError(StrCat(path, ": tensor ", Quoted(last.name)),
                      StrCat("data up to byte ", end),
                      StrCat("a file of ", file.size(), " bytes"));
  }
  return header;
}

}  // namespace tarn
