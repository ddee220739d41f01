// The readers of tool calls: one for each body of a form, fed byte by byte from
// the mark on, so that how an answer is cut cannot matter.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/chat/tool_calls.h"
#include "runtime/chat/tool_forms/argument_types.h"
#include "runtime/chat/tool_forms/form.h"

namespace tarn {

inline constexpr bool IsWhite(char byte) {
  return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

/// The text without the white space around it.
std::string_view Trimmed(std::string_view text);

/// Finds which of some texts comes next, after white space.
class NextText {
 public:
  enum class Found { kMore, kText, kNone };
  NextText() = default;
  /// Empty texts never come. None may begin with another.
  NextText(std::initializer_list<std::string_view> texts);

  /// kText: the text `which()` is complete. kNone: the byte fits none.
  Found Feed(char byte);
  size_t which() const { return which_; }
  /// Bytes of a text so far, the white space not counted.
  size_t matched() const { return matched_; }

 private:
  std::array<std::string_view, 5> texts_{};
  std::array<bool, 5> open_{};
  size_t matched_ = 0, which_ = 0;
};

enum class ReaderStep {
  kMore,     // the byte belongs to a call, or to what comes between calls
  kDropped,  // the bytes since the last call are markup
  kCall,     // call() is complete
  kEnd,      // the end mark is complete
  kFailed,   // the byte does not continue what is allowed; it was not taken
};

class ToolCallReader {
 public:
  virtual ~ToolCallReader() = default;
  /// After form.marks[mark], or, with marks.size(), before the '{' of an answer
  /// without a mark.
  virtual void Begin(size_t mark) = 0;
  virtual ReaderStep Feed(char byte) = 0;
  /// After kFailed: how many bytes before it may begin a mark, at most as many
  /// as a mark has.
  virtual size_t Tail() const = 0;
  /// After kCall; index is not set.
  ToolCallPart& call() { return call_; }

 protected:
  ToolCallPart call_;
};

std::unique_ptr<ToolCallReader> MakeObjectReader(const ToolCallForm& form,
                                                 ToolSchemas schemas);
std::unique_ptr<ToolCallReader> MakeNamedReader(const ToolCallForm& form);
std::unique_ptr<ToolCallReader> MakeTaggedReader(const ToolCallForm& form,
                                                 ToolSchemas schemas);
std::unique_ptr<ToolCallReader> MakePythonicReader(const ToolCallForm& form,
                                                   ToolSchemas schemas);

}  // namespace tarn
