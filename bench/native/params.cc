#include <charconv>
#include <new>
#include <sstream>

#include "core/error.h"
#include "core/half.h"
#include "kernels/bench_case.h"

namespace tarn::bench {

Params::Params(std::string_view text) {
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw ArgumentError("bench: parameters", "name=value", word);
    }
    values_[word.substr(0, equals)] = word.substr(equals + 1);
  }
}

int64_t Params::Int(const std::string& name, int64_t fallback, int64_t least) {
  used_.insert(name);
  const auto found = values_.find(name);
  if (found == values_.end()) return fallback;
  const std::string& text = found->second;
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      value < least) {
    throw ArgumentError(StrCat("bench: ", name),
                        StrCat("an integer of at least ", least), text);
  }
  return value;
}

std::string Params::Text(const std::string& name, const std::string& fallback) {
  used_.insert(name);
  const auto found = values_.find(name);
  return found == values_.end() ? fallback : found->second;
}

DType Params::Type(const std::string& name) {
  const std::string text = Text(name, "f32");
  if (text == "f32") return DType::kF32;
  if (text == "bf16") return DType::kBF16;
  if (text == "f16") return DType::kF16;
  throw ArgumentError(StrCat("bench: ", name), "f32, bf16 or f16", text);
}

void Params::CheckAllUsed() const {
  for (const auto& [name, value] : values_) {
    if (used_.count(name) == 0) {
      throw ArgumentError("bench: parameters", "names the case knows", name);
    }
  }
}

Values::Values(int64_t count, DType dtype, uint64_t seed) {
  const size_t bytes = static_cast<size_t>(count) * DTypeBytes(dtype);
  bytes_.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  if (bytes > 0 && bytes_ == nullptr) throw std::bad_alloc();
  uint64_t bits = seed * 0x9E3779B97F4A7C15u + 1;
  for (int64_t i = 0; i < count; ++i) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    const float x = static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f;
    if (dtype == DType::kF32) {
      f32()[i] = x;
    } else {
      static_cast<uint16_t*>(data())[i] =
          dtype == DType::kBF16 ? F32ToBF16(x) : F32ToF16(x);
    }
  }
}

}  // namespace tarn::bench
