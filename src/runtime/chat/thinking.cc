#include "runtime/chat/thinking.h"

#include <algorithm>
#include <utility>

namespace tarn {
namespace {

constexpr std::string_view kWhite = " \t\r\n";

}  // namespace

ThinkingSplitter::ThinkingSplitter(bool thinks)
    : where_(thinks ? Where::kThinking : Where::kStart),
      mark_({kThinkingEnd}),
      after_mark_(thinks) {}

void ThinkingSplitter::Pass(std::string_view bytes, const Sink& sink) {
  if (after_mark_) {
    bytes.remove_prefix(
        std::min(bytes.find_first_not_of(kWhite), bytes.size()));
  }
  if (bytes.empty()) return;
  after_mark_ = false;
  sink(where_ == Where::kThinking ? AnswerPart::kThinking : AnswerPart::kText,
       bytes);
}

void ThinkingSplitter::Push(std::string_view bytes, const Sink& sink) {
  std::string settled;
  for (const char& byte : bytes) {
    const std::string_view one(&byte, 1);
    if (where_ == Where::kText) {
      settled += one;
    } else if (where_ == Where::kThinking) {
      if (!mark_.Push(one, settled)) continue;
      Pass(settled, sink);
      settled.clear();
      where_ = Where::kText;
      after_mark_ = true;
    } else {
      start_ += one;
      const size_t text = start_.find_first_not_of(kWhite);
      if (text == start_.npos) continue;
      const std::string_view begun = std::string_view(start_).substr(text);
      constexpr std::string_view kMark = kThinkingBegin;
      if (begun == kMark) {
        start_.clear();
        where_ = Where::kThinking;
        after_mark_ = true;
      } else if (!kMark.starts_with(begun)) {
        settled += std::exchange(start_, {});
        where_ = Where::kText;
      }
    }
  }
  Pass(settled, sink);
}

void ThinkingSplitter::Finish(const Sink& sink) {
  std::string rest = std::exchange(start_, {});
  if (where_ == Where::kThinking) rest += mark_.Take();
  Pass(rest, sink);
}

bool EndsThinking(const RenderedText& text) {
  if (text.pieces.empty() || text.pieces.back().from_data) return false;
  const std::string& last = text.pieces.back().text;
  const size_t begin = last.rfind(kThinkingBegin);
  const size_t end = last.rfind(kThinkingEnd);
  return begin != last.npos && (end == last.npos || end < begin);
}

}  // namespace tarn
