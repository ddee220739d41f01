#include "runtime/model/weight_type.h"

#include "core/error.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr const char* kWeightTypeWords[] = {"f32", "bf16"};

}  // namespace

const char* Name(WeightType type) {
  return kWeightTypeWords[static_cast<int>(type)];
}

std::vector<std::string> WeightTypeWords() {
  return {std::begin(kWeightTypeWords), std::end(kWeightTypeWords)};
}

WeightType ParseWeightType(std::string_view where, std::string_view word) {
  std::string wanted;
  for (size_t i = 0; i < std::size(kWeightTypeWords); ++i) {
    if (word == kWeightTypeWords[i]) return static_cast<WeightType>(i);
    wanted += (i == 0 ? "" : " or ") + Quoted(kWeightTypeWords[i]);
  }
  throw ArgumentError(std::string(where), wanted, Quoted(word));
}

}  // namespace tarn
