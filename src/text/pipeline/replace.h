// What the step "Replace" does, before the tokens and after them.
#pragma once

#include <string>
#include <string_view>

namespace tarn {

/// `text` with `content` for each `pattern`, which must not be empty. The time
/// is linear in the two texts.
inline std::string Replaced(std::string_view text, std::string_view pattern,
                            std::string_view content) {
  std::string out;
  size_t begin = 0;
  for (size_t at; (at = text.find(pattern, begin)) != text.npos;) {
    out.append(text, begin, at - begin);
    out += content;
    begin = at + pattern.size();
  }
  return out += text.substr(begin);
}

}  // namespace tarn
