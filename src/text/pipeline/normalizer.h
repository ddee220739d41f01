// What a tokenizer.json does to a text before it cuts it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

struct NormalizerStep {
  enum class Kind : uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kReplace,  // every `pattern` by `content`
    kPrepend,  // `content` before a text that is not empty
    kStrip,    // white space at the ends
  };
  Kind kind;
  std::string pattern = {}, content = {};
  bool left = true, right = true;  // kStrip: which ends
};

/// The steps in their order. O(bytes) for each step, with a run of combining
/// marks sorted as ToNfc does. Bytes that are not UTF-8 stay as they are.
std::string Normalize(const std::vector<NormalizerStep>& steps,
                      std::string_view text);

/// How many times a text may grow by the replacements at most; the reader
/// limits it, as replacements that follow each other multiply.
double ReplacementGrowth(const std::vector<NormalizerStep>& steps);

}  // namespace tarn
