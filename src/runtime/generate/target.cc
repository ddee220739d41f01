#include "runtime/generate/target.h"

#include <vector>

namespace tarn {

std::optional<int32_t> NewlineToken(const Tokenizer& tokenizer) {
  const Result<std::vector<int32_t>> newline = tokenizer.Encode("\n");
  if (!newline.ok() || newline.value().size() != 1) return std::nullopt;
  return newline.value().front();
}

BeamOptions TargetBeam(const Tokenizer& tokenizer, BeamOptions options) {
  const std::optional<int32_t> newline = NewlineToken(tokenizer);
  if (!newline) {
    throw FormatError("tokenizer.json",
                      "a token for the newline, which begins and ends every "
                      "target",
                      "none");
  }
  options.start = options.end = *newline;
  options.candidates = tokenizer.vocab_size();
  return options;
}

}  // namespace tarn
