#include "core/text.h"

#include <mutex>
#include <set>

#include "core/error.h"
#include "core/fork.h"

namespace tarn {

std::string Printable(std::string_view text, size_t max_bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '\\') {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  if (text.size() > max_bytes) out += "...";
  return out;
}

std::string Quoted(std::string_view text, size_t max_bytes) {
  return StrCat("'", Printable(text, max_bytes), "'");
}

const char* KeptText(const std::string& text) {
  static ForkHeldMutex turn;
  static std::set<std::string> texts;
  const std::lock_guard lock(turn);
  return texts.insert(text).first->c_str();
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == text.npos) return parts;
    begin = end + 1;
  }
}

}  // namespace tarn
