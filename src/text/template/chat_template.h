// Chat templates: the subset of Jinja that published tokenizers use to write a
// conversation as one text. Templates and conversations are treated as hostile:
// time, memory and output are bounded. No files, no clock, no torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tarn {

namespace jinja {
struct Program;
}

/// What one call may use. A template that needs more is an error.
struct TemplateLimits {
  /// Evaluated nodes, plus one for every 64 bytes that an operation reads or
  /// writes; ten million take about a second.
  uint64_t max_steps = 10'000'000;
  uint64_t max_output_bytes = uint64_t{64} << 20;
  /// Strings, lists and variables that are alive at one time.
  uint64_t max_memory_bytes = uint64_t{256} << 20;
  /// Levels of lists and objects within a value, those of the context included.
  uint32_t max_value_depth = 64;
  /// Nested evaluations: expressions, blocks, calls of macros. The stack needs
  /// about 1 KB for each, so that the default fits into 1 MB.
  uint32_t max_depth = 800;
};

/// Bytes of a template's source, and levels of nesting in it.
inline constexpr size_t kMaxTemplateBytes = size_t{1} << 18;
inline constexpr uint32_t kMaxTemplateDepth = 150;

/// A date and time as a calendar shows them; strftime_now formats it.
struct CalendarTime {
  int year = 1970, month = 1, day = 1;  // month and day from 1
  int hour = 0, minute = 0, second = 0;
};

struct RenderOptions {
  TemplateLimits limits;
  /// What strftime_now formats. Without it a template that calls strftime_now
  /// is an error.
  std::optional<CalendarTime> now;
  /// Top-level variables whose texts count as the template's own: the names of
  /// special tokens.
  std::vector<std::string> trusted = {"bos_token", "eos_token", "pad_token",
                                      "unk_token", "sep_token", "cls_token",
                                      "mask_token"};
  /// A message's "role" counts as the template's own text if it is one of
  /// these words, so that '<|' + role + '|>' can be a special token.
  std::vector<std::string> trusted_roles = {
      "system", "developer", "user", "assistant", "tool", "function"};
};

/// A part of the rendered text. Text from the context (messages, tools) is
/// data: a tokenizer must not find special tokens in it.
struct RenderedPiece {
  std::string text;
  bool from_data = false;
  bool operator==(const RenderedPiece&) const = default;
};

struct RenderedText {
  /// None is empty; neighbours differ in from_data.
  std::vector<RenderedPiece> pieces;
  /// The pieces as one text. O(bytes).
  std::string Text() const;
};

/// A parsed template. A value: copies share the program. Immutable; any number
/// of threads may render at the same time.
class ChatTemplate {
 public:
  /// Reads Jinja source as transformers does (trim_blocks, lstrip_blocks,
  /// break and continue, generation blocks). FormatError names line and column,
  /// both from 1; columns count bytes. O(bytes).
  static Result<ChatTemplate> Parse(std::string_view source);

  /// Writes the variables of `context`, an object, into the template. The keys
  /// of its objects keep their order. FormatError: an operation that Jinja
  /// refuses, or a limit; ArgumentError: the template called raise_exception,
  /// or the context is not an object or too deep.
  Result<RenderedText> Render(const nlohmann::ordered_json& context,
                              const RenderOptions& options = {}) const;
  /// The same with the context as JSON text. Memory and time are linear in the
  /// text, also for objects with many keys.
  Result<RenderedText> RenderJson(std::string_view context,
                                  const RenderOptions& options = {}) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Program> program);

  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace tarn
