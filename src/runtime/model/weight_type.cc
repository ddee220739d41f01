#include "runtime/model/weight_type.h"

#include "core/error.h"
#include "core/text.h"

namespace tarn {

const char* Name(WeightType type) { return type.format().name; }

std::vector<std::string> WeightTypeWords() {
  std::vector<std::string> words;
  for (const WeightFormat* format : WeightFormats()) {
    words.emplace_back(format->name);
  }
  return words;
}

WeightType ParseWeightType(std::string_view where, std::string_view word) {
  std::string wanted;
  for (const WeightFormat* format : WeightFormats()) {
    if (word == format->name) return *format;
    wanted += (wanted.empty() ? "" : " or ") + Quoted(format->name);
  }
  throw ArgumentError(std::string(where), wanted, Quoted(word));
}

}  // namespace tarn
