#include "text/pipeline/normalizer.h"

#include <algorithm>

#include "text/pipeline/replace.h"
#include "text/unicode/nfc.h"
#include "text/unicode/unicode.h"

namespace tarn {
namespace {

std::string_view Stripped(std::string_view text, bool left, bool right) {
  const auto is_space = [](Character c) {
    return c.kind == CharacterClass::kSpace;
  };
  while (left && !text.empty() && is_space(ReadCharacter(text))) {
    text.remove_prefix(ReadCharacter(text).bytes);
  }
  while (right && !text.empty() && is_space(ReadLastCharacter(text))) {
    text.remove_suffix(ReadLastCharacter(text).bytes);
  }
  return text;
}

std::string Apply(const NormalizerStep& step, std::string text) {
  using enum NormalizerStep::Kind;
  switch (step.kind) {
    case kNfc:
      return ToNfc(text);
    case kNfd:
      return ToForm(text, {.compatible = false, .compose = false});
    case kNfkc:
      return ToForm(text, {.compatible = true, .compose = true});
    case kNfkd:
      return ToForm(text, {.compatible = true, .compose = false});
    case kLowercase:
      return ToLower(text);
    case kReplace:
      return Replaced(text, step.pattern, step.content);
    case kPrepend:
      return text.empty() ? text : step.content + text;
    case kStrip:
      return std::string(Stripped(text, step.left, step.right));
  }
  return text;
}

}  // namespace

std::string Normalize(const std::vector<NormalizerStep>& steps,
                      std::string_view text) {
  std::string out(text);
  for (const NormalizerStep& step : steps) out = Apply(step, std::move(out));
  return out;
}

double ReplacementGrowth(const std::vector<NormalizerStep>& steps) {
  double growth = 1;
  for (const NormalizerStep& step : steps) {
    if (step.kind != NormalizerStep::Kind::kReplace) continue;
    growth *= std::max(1.0, static_cast<double>(step.content.size()) /
                                static_cast<double>(step.pattern.size()));
  }
  return growth;
}

}  // namespace tarn
