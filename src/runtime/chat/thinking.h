// An answer's thinking and the rest of it, told apart as the bytes come.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/session/stop_texts.h"
#include "text/template/chat_template.h"

namespace tarn {

inline constexpr char kThinkingBegin[] = "<think>";
inline constexpr char kThinkingEnd[] = "</think>";

/// What a part of an answer is.
enum class AnswerPart { kThinking, kText };

/// Splits a stream of bytes: thinking is what is between <think>, where only
/// white space comes before it, and </think>. The marks and the white space
/// around them belong to neither. One thread at a time.
class ThinkingSplitter {
 public:
  using Sink = std::function<void(AnswerPart, std::string_view)>;
  /// thinks: the answer begins within its thinking, as the prompt has <think>.
  explicit ThinkingSplitter(bool thinks = false);

  /// Passes on what the bytes settle, never an empty part.
  void Push(std::string_view bytes, const Sink& sink);
  /// What is still held back: the answer has ended.
  void Finish(const Sink& sink);
  bool thinks() const { return where_ == Where::kThinking; }

 private:
  enum class Where { kStart, kThinking, kText };
  void Pass(std::string_view bytes, const Sink& sink);

  Where where_;
  StopTexts mark_;     // the one that comes next
  std::string start_;  // bytes at kStart, all of which may belong to the mark
  bool after_mark_ = false;  // white space is dropped until text comes
};

/// Whether a prompt ends within an answer's thinking.
bool EndsThinking(const RenderedText& text);

}  // namespace tarn
