#include "runtime/chat/tool_forms/reader.h"

#include <algorithm>

namespace tarn {

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsWhite(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsWhite(text.back())) text.remove_suffix(1);
  return text;
}

NextText::NextText(std::initializer_list<std::string_view> texts) {
  std::copy(texts.begin(), texts.end(), texts_.begin());
  for (size_t i = 0; i < texts_.size(); ++i) open_[i] = !texts_[i].empty();
}

NextText::Found NextText::Feed(char byte) {
  if (matched_ == 0 && IsWhite(byte)) return Found::kMore;
  std::array<bool, 5> fits{};
  bool any = false;
  for (size_t i = 0; i < texts_.size(); ++i) {
    fits[i] = open_[i] && texts_[i][matched_] == byte;
    any = any || fits[i];
  }
  if (!any) return Found::kNone;
  open_ = fits;
  ++matched_;
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (!open_[i] || texts_[i].size() != matched_) continue;
    which_ = i;
    return Found::kText;
  }
  return Found::kMore;
}

}  // namespace tarn
