// Keys of a file that is written.
#include <algorithm>
#include <limits>

#include "core/text.h"
#include "weights/gguf/gguf_writer.h"

namespace tarn {
namespace {

// Throws ArgumentError for an integer outside of T.
template <typename T>
T Narrowed(std::string_view key, int64_t value) {
  constexpr int64_t kLeast = std::numeric_limits<T>::min();
  constexpr int64_t kMost = std::numeric_limits<T>::max();
  if (value >= kLeast && value <= kMost) return static_cast<T>(value);
  throw ArgumentError(StrCat("GGUF: key ", Quoted(key, 200)),
                      StrCat("an integer from ", kLeast, " to ", kMost),
                      StrCat(value));
}

}  // namespace

template <typename T>
void GgufKeyList::Put(T value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void GgufKeyList::PutText(std::string_view text) {
  Put(static_cast<uint64_t>(text.size()));
  bytes_ += text;
}

bool GgufKeyList::Has(std::string_view key) const {
  return std::find(keys_.begin(), keys_.end(), key) != keys_.end();
}

void GgufKeyList::Begin(std::string_view key, GgufType type) {
  if (key.empty() || key.size() > kMaxGgufKeyBytes || Has(key)) {
    throw ArgumentError(StrCat("GGUF: key ", Quoted(key, 200)),
                        StrCat("a name of 1 to ", kMaxGgufKeyBytes,
                               " bytes that no other key has"),
                        StrCat(key.size(), " bytes"));
  }
  keys_.emplace_back(key);
  PutText(key);
  Put(static_cast<uint32_t>(type));
}

void GgufKeyList::BeginArray(std::string_view key, GgufType item,
                             uint64_t count) {
  Begin(key, GgufType::kArray);
  Put(static_cast<uint32_t>(item));
  Put(count);
}

void GgufKeyList::U32(std::string_view key, int64_t value) {
  const auto number = Narrowed<uint32_t>(key, value);
  Begin(key, GgufType::kU32);
  Put(number);
}

void GgufKeyList::I32(std::string_view key, int64_t value) {
  const auto number = Narrowed<int32_t>(key, value);
  Begin(key, GgufType::kI32);
  Put(number);
}

void GgufKeyList::F32(std::string_view key, double value) {
  Begin(key, GgufType::kF32);
  Put(static_cast<float>(value));
}

void GgufKeyList::Bool(std::string_view key, bool value) {
  Begin(key, GgufType::kBool);
  Put(static_cast<uint8_t>(value));
}

void GgufKeyList::Text(std::string_view key, std::string_view value) {
  Begin(key, GgufType::kString);
  PutText(value);
}

void GgufKeyList::I32s(std::string_view key, std::span<const int64_t> values) {
  for (const int64_t value : values) Narrowed<int32_t>(key, value);
  BeginArray(key, GgufType::kI32, values.size());
  for (const int64_t value : values) Put(static_cast<int32_t>(value));
}

void GgufKeyList::F32s(std::string_view key, std::span<const float> values) {
  BeginArray(key, GgufType::kF32, values.size());
  for (const float value : values) Put(value);
}

void GgufKeyList::Bools(std::string_view key, const std::vector<bool>& values) {
  BeginArray(key, GgufType::kBool, values.size());
  for (const bool value : values) Put(static_cast<uint8_t>(value));
}

void GgufKeyList::Texts(std::string_view key,
                        std::span<const std::string> values) {
  BeginArray(key, GgufType::kString, values.size());
  for (const std::string& value : values) PutText(value);
}

}  // namespace tarn
