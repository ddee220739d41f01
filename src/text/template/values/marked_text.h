// UTF-8 text that knows which of its bytes came from the context ("data").
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/values/budget.h"

namespace tarn::jinja {

/// Neighbouring spans differ in `data`; the last one ends where the text does.
class MarkedText {
 public:
  struct Span {
    size_t end = 0;
    bool data = false;
  };

  MarkedText() = default;
  MarkedText(std::string_view text, bool data) { Append(text, data); }

  const std::string& text() const { return text_; }
  const std::vector<Span>& spans() const { return spans_; }
  size_t size() const { return text_.size(); }
  size_t Bytes() const { return text_.size() + spans_.size() * sizeof(Span); }
  /// Whether the byte at `at` is data. O(log spans).
  bool DataAt(size_t at) const;
  /// Whether any byte is data.
  bool AnyData() const {
    return spans_.size() > 1 || (spans_.size() == 1 && spans_[0].data);
  }

  void Append(std::string_view text, bool data);
  /// Bytes [begin, end) of another text, with their marks.
  void Append(const MarkedText& other, size_t begin, size_t end);
  void Append(const MarkedText& other) { Append(other, 0, other.size()); }
  /// Drops all after `size` bytes. O(spans dropped).
  void Truncate(size_t size);

 private:
  std::string text_;
  std::vector<Span> spans_;
};

/// A text that grows within a budget. Appending costs steps by the byte.
class TextBuilder {
 public:
  explicit TextBuilder(Budget* budget, uint64_t max_bytes = UINT64_MAX)
      : budget_(budget), account_(budget, 0), max_bytes_(max_bytes) {}

  const MarkedText& text() const { return text_; }
  void Append(std::string_view text, bool data = false) {
    Reserve(text.size());
    text_.Append(text, data);
  }
  void Append(const MarkedText& other, size_t begin, size_t end) {
    Reserve(end - begin);
    text_.Append(other, begin, end);
  }
  void Append(const MarkedText& other) { Append(other, 0, other.size()); }
  MarkedText Take() { return std::move(text_); }

 private:
  void Reserve(size_t bytes);

  Budget* budget_;
  Account account_;
  uint64_t max_bytes_;
  MarkedText text_;
};

}  // namespace tarn::jinja
