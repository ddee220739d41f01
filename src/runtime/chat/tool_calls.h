// Calls of tools in a model's answer, told apart from its text as the bytes
// come.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "text/template/chat_format.h"

namespace tarn {

/// How a template writes calls: a row of a table (tool_forms/form.h).
struct ToolCallForm;
class ToolCallReader;

struct ToolCallPart {
  size_t index = 0;       // among the calls of an answer
  std::string name;       // of the function
  std::string arguments;  // a JSON object, as the model wrote it where it did
};

/// Bytes of one call with its marks; longer ones are text.
inline constexpr size_t kMaxToolCallBytes = size_t{1} << 20;
/// Bytes of the name of a function or of a parameter in it.
inline constexpr size_t kMaxToolNameBytes = 256;
/// White space that is held back, as a call may come after it.
inline constexpr size_t kMaxHeldWhiteBytes = 256;

/// All forms; one that another's marks contain comes after it.
std::span<const ToolCallForm> ToolCallForms();
/// The form that a template writes: the first whose marks its source has. Null
/// where it has none. The answer is from a table: it is valid for the life of
/// the program. O(source).
const ToolCallForm* ToolCallFormOf(std::string_view template_source);
const ToolCallForm* ToolCallFormOf(const ChatFormat& format);

/// Splits an answer, as Tokenizer::Decode gives it: with the texts of special
/// tokens. A call begins at a mark of the form and is told once its arguments
/// are complete. What cannot be a call any more is text up to the byte that
/// shows it; no call is looked for in it. White space next to a call belongs to
/// neither. How the bytes are cut makes no difference. O(bytes) time and at
/// most about twice kMaxToolCallBytes of memory. One thread at a time.
class ToolCallSplitter {
 public:
  using TextSink = std::function<void(std::string_view)>;
  using CallSink = std::function<void(const ToolCallPart&)>;
  /// Null: all is text. `tools`: a list of schemas of functions as a request
  /// has them, or null; of forms that write values without their types the
  /// schemas tell these, and a form without marks calls functions of the list
  /// alone. Nothing refers to it afterwards. O(tools).
  explicit ToolCallSplitter(const ToolCallForm* form);
  ToolCallSplitter(const ToolCallForm* form,
                   const nlohmann::ordered_json& tools);
  ~ToolCallSplitter();
  ToolCallSplitter(ToolCallSplitter&&) noexcept;
  ToolCallSplitter& operator=(ToolCallSplitter&&) noexcept;

  /// Tells what the bytes settle, in order, no empty text. What a sink throws
  /// ends the call; the splitter must not be used any more.
  void Push(std::string_view bytes, const TextSink& on_text,
            const CallSink& on_call);
  /// What is still held back, as text: the answer has ended.
  void Finish(const TextSink& on_text);
  size_t calls() const { return calls_; }

 private:
  bool Begins();
  void Settle(char byte);
  void TakeText(char byte);
  void TakeCall(char byte, std::string& next, const TextSink& on_text,
                const CallSink& on_call);
  void Tell(const TextSink& on_text);

  const ToolCallForm* form_;
  std::unique_ptr<ToolCallReader> reader_;  // null without a form
  bool in_call_ = false;
  std::string settled_;      // text that is not told yet
  std::string white_;        // white space before mark_, at most the limit
  std::string mark_;         // what a mark may begin with
  std::string held_;         // in_call_: since the mark, or since the last call
  bool at_start_ = true;     // no text and no call so far
  bool after_call_ = false;  // white space is dropped until text comes
  size_t calls_ = 0;
};

}  // namespace tarn
