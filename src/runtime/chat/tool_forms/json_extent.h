// Where a JSON object in a stream of bytes ends, and what its members are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/tool_calls.h"

namespace tarn {

/// Follows strings and brackets only: what it accepts need not be JSON. At most
/// kMaxJsonDepth levels. A value that is no container never begins.
class JsonExtent {
 public:
  enum class At { kInside, kEnd, kBad };
  /// The bytes from the opening bracket on.
  At Feed(char byte);

 private:
  uint64_t lists_ = 0;  // a bit for each level: a list, else an object
  size_t depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

struct RawMember {
  std::string key;
  std::string_view value;  // a JSON text, within the object's
};

/// The members of a JSON object that ParseStrictJson accepts. O(bytes).
std::vector<RawMember> RawMembers(std::string_view object);

/// The text of the arguments of a call: the value itself where it is an object,
/// the content of a string that is one (or is empty), {} for null. Nothing for
/// another value, or what is no strict JSON.
std::optional<std::string> ArgumentsText(std::string_view value);

/// Reads {"name": ..., "arguments": {...}}, with "parameters" for the latter,
/// perhaps within "function". Nothing for another object.
std::optional<ToolCallPart> CallOfObject(std::string_view object);

/// Whether a function may be called that: some bytes, at most
/// kMaxToolNameBytes, without white space, control codes and the signs
/// <>{}[]()"' and `.
bool IsToolName(std::string_view name);

}  // namespace tarn
