#include "weights/gguf/gguf_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <new>
#include <utility>

#include "core/files/file_bytes.h"
#include "core/numbers/number_text.h"
#include "core/text.h"
#include "weights/gguf/gguf_header.h"

namespace tarn {
namespace {

bool IsInteger(GgufType type) {
  switch (type) {
    case GgufType::kF32:
    case GgufType::kF64:
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray:
      return false;
    default:
      return true;
  }
}

template <typename T>
T ItemAs(const GgufValue& value, uint64_t i) {
  T number;
  std::memcpy(&number, value.bytes.data() + i * sizeof(T), sizeof(T));
  return number;
}

// Item i of a value of integers; u64 above the range of int64: its largest,
// which is outside of what callers allow.
int64_t IntegerOf(const GgufValue& value, uint64_t i) {
  switch (value.item) {
    case GgufType::kU8:
      return ItemAs<uint8_t>(value, i);
    case GgufType::kI8:
      return ItemAs<int8_t>(value, i);
    case GgufType::kU16:
      return ItemAs<uint16_t>(value, i);
    case GgufType::kI16:
      return ItemAs<int16_t>(value, i);
    case GgufType::kU32:
      return ItemAs<uint32_t>(value, i);
    case GgufType::kI32:
      return ItemAs<int32_t>(value, i);
    case GgufType::kU64:
      return static_cast<int64_t>(
          std::min<uint64_t>(ItemAs<uint64_t>(value, i), INT64_MAX));
    default:
      return ItemAs<int64_t>(value, i);
  }
}

// The shortest decimal number that a float32 stands for: 1e-6 as its writer
// had it, which a widened float32 is not.
double DecimalOf(float number) {
  if (!std::isfinite(number)) return number;
  char text[32];
  const char* end = ToChars(text, text + sizeof(text), number).ptr;
  double decimal = 0;
  FromChars(text, end, decimal);
  return decimal;
}

double RealOf(const GgufValue& value, uint64_t i) {
  if (value.item == GgufType::kF32) return DecimalOf(ItemAs<float>(value, i));
  if (value.item == GgufType::kF64) return ItemAs<double>(value, i);
  return static_cast<double>(IntegerOf(value, i));
}

// "an array of 3 f32", for messages.
std::string Shown(const GgufValue& value) {
  if (value.type == GgufType::kArray) {
    return StrCat("an array of ", value.count, " ", GgufTypeWord(value.item));
  }
  if (value.type == GgufType::kString) {
    return StrCat("the text ", Quoted(value.bytes));
  }
  if (value.type == GgufType::kBool) {
    return value.bytes[0] == 1 ? "true" : "false";
  }
  return IsInteger(value.type) ? StrCat(IntegerOf(value, 0))
                               : StrCat(RealOf(value, 0));
}

}  // namespace

struct GgufFile::Impl {
  std::string path;
  GgufHeader header;
  std::vector<uint32_t> by_name;  // tensors, sorted by their names
  AlignedBuffer copy;
  FileMapping mapping;
  const uint8_t* data = nullptr;  // of the whole file

  void Load(std::span<const uint8_t> file) {
    header = ParseGgufHeader(path, file);
    data = file.data();
    by_name.resize(header.tensors.size());
    for (size_t i = 0; i < by_name.size(); ++i) {
      by_name[i] = static_cast<uint32_t>(i);
    }
    std::sort(by_name.begin(), by_name.end(), [&](uint32_t a, uint32_t b) {
      return header.tensors[a].name < header.tensors[b].name;
    });
  }
  [[noreturn]] void Refuse(std::string_view key, const std::string& wanted,
                           const GgufValue* given) const {
    throw FormatError(StrCat(path, ": key ", Quoted(key, 200)), wanted,
                      given == nullptr ? "no such key" : Shown(*given));
  }
  const GgufValue* Value(std::string_view key) const {
    const auto found = header.values.find(key);
    return found == header.values.end() ? nullptr : &found->second;
  }
  const GgufValue& One(std::string_view key, GgufType type,
                       const std::string& wanted) const {
    const GgufValue* value = Value(key);
    if (value == nullptr || value->type != type) Refuse(key, wanted, value);
    return *value;
  }
  // An array of at most `count` items that `fits` takes.
  template <typename F>
  const GgufValue& Array(std::string_view key, uint64_t count,
                         const char* items, const F& fits) const {
    const GgufValue* value = Value(key);
    if (value == nullptr || value->type != GgufType::kArray ||
        value->count > count || !fits(value->item)) {
      Refuse(key, StrCat("an array of at most ", count, " ", items), value);
    }
    return *value;
  }
};

bool IsGgufFile(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  const Result<OpenedFile> file = OpenedFile::Open(path);
  char magic[4];
  return file.ok() &&
         ReadFully(file.value().fd.get(), reinterpret_cast<uint8_t*>(magic),
                   sizeof(magic)) == sizeof(magic) &&
         std::string_view(magic, sizeof(magic)) == "GGUF";
}

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<GgufFile> GgufFile::Open(const std::string& path, bool use_mmap) {
  try {
    const OpenedFile file = OpenedFile::Open(path).Take();
    if (!file.size) throw IoError(path, "a regular file", "a pipe or device");
    auto impl = std::make_unique<Impl>();
    impl->path = path;
    const uint64_t bytes = *file.size;
    if (use_mmap && bytes > 0) {
      if (!impl->mapping.Map(file.fd.get(), bytes)) {
        return SystemError(path, "a file that can be mapped", errno);
      }
      impl->Load({impl->mapping.get(), static_cast<size_t>(bytes)});
    } else {
      if (auto error = ReadNext(file, 0, bytes, impl->copy)) return *error;
      impl->Load({impl->copy.get(), static_cast<size_t>(bytes)});
    }
    return GgufFile(std::move(impl));
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return IoError(path, "memory for its contents", "none left");
  }
}

Result<GgufFile> GgufFile::OfBytes(const std::string& name,
                                   std::span<const uint8_t> bytes) {
  try {
    auto impl = std::make_unique<Impl>();
    impl->path = name;
    impl->Load(bytes);
    return GgufFile(std::move(impl));
  } catch (const Error& error) {
    return error;
  }
}

const std::string& GgufFile::path() const { return impl_->path; }
uint32_t GgufFile::version() const { return impl_->header.version; }
const std::vector<GgufTensor>& GgufFile::tensors() const {
  return impl_->header.tensors;
}
const std::vector<std::string>& GgufFile::keys() const {
  return impl_->header.keys;
}
uint64_t GgufFile::data_offset() const { return impl_->header.data_offset; }

const GgufTensor* GgufFile::Find(std::string_view tensor) const {
  const auto& tensors = impl_->header.tensors;
  const auto found =
      std::lower_bound(impl_->by_name.begin(), impl_->by_name.end(), tensor,
                       [&](uint32_t i, std::string_view name) {
                         return tensors[i].name < name;
                       });
  if (found == impl_->by_name.end() || tensors[*found].name != tensor) {
    return nullptr;
  }
  return &tensors[*found];
}

const uint8_t* GgufFile::Data(const GgufTensor& tensor) const {
  return impl_->data + impl_->header.data_offset + tensor.begin;
}

void GgufFile::Release(const GgufTensor& tensor) const {
  const uint64_t begin = impl_->header.data_offset + tensor.begin;
  impl_->mapping.Release(begin, begin + tensor.bytes);
}

std::string GgufFile::Where(std::string_view key) const {
  return StrCat(impl_->path, ": key ", Quoted(key, 200));
}

bool GgufFile::Has(std::string_view key) const {
  return impl_->Value(key) != nullptr;
}

GgufType GgufFile::TypeOf(std::string_view key) const {
  const GgufValue* value = impl_->Value(key);
  if (value == nullptr) impl_->Refuse(key, "a value", nullptr);
  return value->type;
}

GgufType GgufFile::ItemTypeOf(std::string_view key) const {
  const GgufValue* value = impl_->Value(key);
  if (value == nullptr) impl_->Refuse(key, "a value", nullptr);
  return value->item;
}

uint64_t GgufFile::CountOf(std::string_view key) const {
  const GgufValue* value = impl_->Value(key);
  if (value == nullptr) impl_->Refuse(key, "a value", nullptr);
  return value->count;
}

int64_t GgufFile::Integer(std::string_view key, int64_t least,
                          int64_t most) const {
  const GgufValue* value = impl_->Value(key);
  if (value != nullptr && IsInteger(value->type)) {
    const int64_t number = IntegerOf(*value, 0);
    if (number >= least && number <= most) return number;
  }
  impl_->Refuse(key, StrCat("an integer from ", least, " to ", most), value);
}

double GgufFile::Real(std::string_view key, double least, double most) const {
  const GgufValue* value = impl_->Value(key);
  if (value != nullptr &&
      (IsInteger(value->type) || value->type == GgufType::kF32 ||
       value->type == GgufType::kF64)) {
    const double number = RealOf(*value, 0);
    if (std::isfinite(number) && number >= least && number <= most) {
      return number;
    }
  }
  impl_->Refuse(key,
                least == -std::numeric_limits<double>::max()
                    ? "a finite number"
                    : StrCat("a number from ", least, " to ", most),
                value);
}

bool GgufFile::Flag(std::string_view key) const {
  return impl_->One(key, GgufType::kBool, "true or false").bytes[0] == 1;
}

const std::string& GgufFile::Text(std::string_view key) const {
  return impl_->One(key, GgufType::kString, "a text").bytes;
}

std::vector<int64_t> GgufFile::Integers(std::string_view key, int64_t least,
                                        int64_t most, uint64_t count) const {
  const GgufValue& value = impl_->Array(key, count, "integers", IsInteger);
  std::vector<int64_t> numbers;
  numbers.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    numbers.push_back(IntegerOf(value, i));
    if (numbers.back() >= least && numbers.back() <= most) continue;
    throw FormatError(StrCat(Where(key), ", item ", i),
                      StrCat("an integer from ", least, " to ", most),
                      StrCat(numbers.back()));
  }
  return numbers;
}

std::vector<double> GgufFile::Reals(std::string_view key,
                                    uint64_t count) const {
  const GgufValue& value =
      impl_->Array(key, count, "numbers", [](GgufType type) {
        return IsInteger(type) || type == GgufType::kF32 ||
               type == GgufType::kF64;
      });
  std::vector<double> numbers;
  numbers.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    numbers.push_back(RealOf(value, i));
    if (std::isfinite(numbers.back())) continue;
    throw FormatError(StrCat(Where(key), ", item ", i), "a finite number",
                      StrCat(numbers.back()));
  }
  return numbers;
}

std::vector<bool> GgufFile::Flags(std::string_view key, uint64_t count) const {
  const GgufValue& value = impl_->Array(key, count, "bools", [](GgufType type) {
    return type == GgufType::kBool;
  });
  std::vector<bool> flags;
  for (const char byte : value.bytes) flags.push_back(byte == 1);
  return flags;
}

const GgufStrings& GgufFile::Strings(std::string_view key,
                                     uint64_t count) const {
  return impl_
      ->Array(key, count, "texts",
              [](GgufType type) { return type == GgufType::kString; })
      .strings;
}

}  // namespace tarn
