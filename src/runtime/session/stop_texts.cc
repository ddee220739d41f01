#include "runtime/session/stop_texts.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace tarn {

StopTexts::StopTexts(const std::vector<std::string>& texts) {
  if (texts.size() > kMaxStopTexts) {
    throw ArgumentError("stop", StrCat("at most ", kMaxStopTexts, " texts"),
                        StrCat(texts.size()));
  }
  for (const std::string& text : texts) {
    if (text.empty() || text.size() > kMaxStopBytes) {
      throw ArgumentError("stop",
                          StrCat("texts of 1 to ", kMaxStopBytes, " bytes"),
                          StrCat("one of ", text.size()));
    }
    Pattern& pattern = patterns_.emplace_back();
    pattern.text = text;
    pattern.borders.resize(text.size(), 0);
    // Knuth, Morris & Pratt 1977: the text matched against itself.
    for (size_t i = 1; i < text.size(); ++i) {
      pattern.Add(text[i]);
      pattern.borders[i] = pattern.matched;
    }
    pattern.matched = 0;
  }
}

void StopTexts::Pattern::Add(char byte) {
  while (matched > 0 && text[matched] != byte) {
    matched = borders[matched - 1];
  }
  if (text[matched] == byte) ++matched;
}

bool StopTexts::Push(std::string_view bytes, std::string& out) {
  if (patterns_.empty()) {
    out += bytes;
    return false;
  }
  for (const char byte : bytes) {
    held_ += byte;
    size_t longest = 0, complete = 0;
    for (Pattern& pattern : patterns_) {
      pattern.Add(byte);
      longest = std::max(longest, pattern.matched);
      if (pattern.matched == pattern.text.size() &&
          pattern.matched > complete) {
        complete = pattern.matched;
        found_ = pattern.text;
      }
    }
    if (complete > 0) {
      out.append(held_, 0, held_.size() - complete);
      Reset();
      return true;
    }
    const size_t free = held_.size() - longest;
    if (free == 0) continue;
    out.append(held_, 0, free);
    held_.erase(0, free);
  }
  return false;
}

std::string StopTexts::Take() {
  std::string held = std::move(held_);
  Reset();
  return held;
}

void StopTexts::Reset() {
  held_.clear();
  for (Pattern& pattern : patterns_) pattern.matched = 0;
}

}  // namespace tarn
