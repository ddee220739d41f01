#include "runtime/model/weight_type.h"

#include "core/error.h"
#include "core/text.h"

namespace tarn {

namespace {

constexpr const char* kAutoWord = "auto";

}  // namespace

const char* Name(WeightType type) {
  return type.format() == nullptr ? kAutoWord : type.format()->name;
}

std::vector<std::string> WeightTypeWords() {
  std::vector<std::string> words = {kAutoWord};
  for (const WeightFormat* format : WeightFormats()) {
    words.emplace_back(format->name);
  }
  return words;
}

WeightType ParseWeightType(std::string_view where, std::string_view word) {
  if (word == kAutoWord) return WeightType::kAuto;
  std::string wanted = Quoted(kAutoWord);
  for (const WeightFormat* format : WeightFormats()) {
    if (word == format->name) return *format;
    wanted += " or " + Quoted(format->name);
  }
  throw ArgumentError(std::string(where), wanted, Quoted(word));
}

}  // namespace tarn
