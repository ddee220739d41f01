#include "text/template/values/marked_text.h"

#include <algorithm>

#include "text/template/values/fault.h"

namespace tarn::jinja {
namespace {

// The span that contains the byte at `at`.
std::vector<MarkedText::Span>::const_iterator SpanAt(
    const std::vector<MarkedText::Span>& spans, size_t at) {
  return std::upper_bound(spans.begin(), spans.end(), at,
                          [](size_t position, const MarkedText::Span& span) {
                            return position < span.end;
                          });
}

}  // namespace

bool MarkedText::DataAt(size_t at) const {
  const auto span = SpanAt(spans_, at);
  return span != spans_.end() && span->data;
}

void MarkedText::Append(std::string_view text, bool data) {
  if (text.empty()) return;
  text_ += text;
  if (!spans_.empty() && spans_.back().data == data) {
    spans_.back().end = text_.size();
  } else {
    spans_.push_back({text_.size(), data});
  }
}

void MarkedText::Append(const MarkedText& other, size_t begin, size_t end) {
  const std::string_view whole = other.text_;
  for (auto span = SpanAt(other.spans_, begin); begin < end; ++span) {
    const size_t until = std::min(end, span->end);
    Append(whole.substr(begin, until - begin), span->data);
    begin = until;
  }
}

void MarkedText::Truncate(size_t size) {
  text_.resize(size);
  while (!spans_.empty() &&
         (spans_.size() > 1 ? spans_[spans_.size() - 2].end : 0) >= size) {
    spans_.pop_back();
  }
  if (!spans_.empty()) spans_.back().end = size;
}

void TextBuilder::Reserve(size_t bytes) {
  if (budget_ == nullptr) return;
  const uint64_t size = text_.size() + uint64_t{bytes};
  if (size > max_bytes_) {
    Fail(StrCat("at most ", max_bytes_, " bytes of output"), "more");
  }
  budget_->Work(bytes);
  // Spans are counted one step late, which the next call makes good.
  account_.Grow(text_.Bytes() + uint64_t{bytes});
}

}  // namespace tarn::jinja
