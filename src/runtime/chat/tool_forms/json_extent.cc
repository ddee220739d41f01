#include "runtime/chat/tool_forms/json_extent.h"

#include <algorithm>
#include <utility>

#include "core/json.h"
#include "runtime/chat/tool_forms/reader.h"

namespace tarn {
namespace {

using nlohmann::json;

constexpr char kWhereCall[] = "tool call";

// The end of the value that begins at `at` of a valid object.
size_t RawValueEnd(std::string_view object, size_t at) {
  if (object[at] == '{' || object[at] == '[') {
    JsonExtent extent;
    while (extent.Feed(object[at]) == JsonExtent::At::kInside) ++at;
    return at + 1;
  }
  if (object[at] == '"') {
    ++at;
    while (object[at] != '"') at += object[at] == '\\' ? 2 : 1;
    return at + 1;
  }
  return object.find_first_of(",} \t\r\n", at);
}

const RawMember* FindMember(const std::vector<RawMember>& members,
                            std::string_view key) {
  const auto found =
      std::find_if(members.begin(), members.end(),
                   [&](const RawMember& m) { return m.key == key; });
  return found == members.end() ? nullptr : &*found;
}

std::string DecodedString(std::string_view text) {
  return ParseStrictJson(text, kWhereCall, text.size())
      .Take()
      .get<std::string>();
}

}  // namespace

JsonExtent::At JsonExtent::Feed(char byte) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (byte == '\\') {
      escaped_ = true;
    } else if (byte == '"') {
      in_string_ = false;
    } else if (static_cast<unsigned char>(byte) < 0x20) {
      return At::kBad;
    }
    return At::kInside;
  }
  switch (byte) {
    case '"':
      in_string_ = true;
      return At::kInside;
    case '{':
    case '[':
      if (depth_ == kMaxJsonDepth) return At::kBad;
      lists_ = lists_ << 1 | (byte == '[' ? 1 : 0);
      ++depth_;
      return At::kInside;
    case '}':
    case ']':
      if (depth_ == 0 || (lists_ & 1) != (byte == ']' ? 1u : 0u)) {
        return At::kBad;
      }
      lists_ >>= 1;
      return --depth_ == 0 ? At::kEnd : At::kInside;
    default:
      return At::kInside;
  }
}

std::vector<RawMember> RawMembers(std::string_view object) {
  std::vector<RawMember> members;
  constexpr std::string_view kBetween = " \t\r\n,:";
  size_t at = 1;
  while (true) {
    at = object.find_first_not_of(kBetween, at);
    if (object[at] == '}') return members;
    const size_t key_end = RawValueEnd(object, at);
    std::string_view key = object.substr(at, key_end - at);
    RawMember& member = members.emplace_back();
    member.key = key.find('\\') == key.npos
                     ? std::string(key.substr(1, key.size() - 2))
                     : DecodedString(key);
    at = object.find_first_not_of(kBetween, key_end);
    const size_t end = RawValueEnd(object, at);
    member.value = object.substr(at, end - at);
    at = end;
  }
}

std::optional<std::string> ArgumentsText(std::string_view value) {
  if (value == "null") return "{}";
  std::string text(value);
  if (value.starts_with('"')) {
    const auto content = ParseStrictJson(value, kWhereCall, value.size());
    if (!content.ok() || !content.value().is_string()) return std::nullopt;
    text = content.value().get<std::string>();
    text = std::string(Trimmed(text));
    if (text.empty()) return "{}";
  }
  const auto object = ParseStrictJson(text, kWhereCall, text.size());
  if (!object.ok() || !object.value().is_object()) return std::nullopt;
  return text;
}

std::optional<ToolCallPart> CallOfObject(std::string_view object) {
  const auto checked = ParseStrictJson(object, kWhereCall, object.size());
  if (!checked.ok() || !checked.value().is_object()) return std::nullopt;
  std::vector<RawMember> members = RawMembers(object);
  const RawMember* inner = FindMember(members, "function");
  if (inner != nullptr && inner->value.starts_with('{')) {
    members = RawMembers(inner->value);
  }
  const RawMember* name = FindMember(members, "name");
  if (name == nullptr || !name->value.starts_with('"')) return std::nullopt;
  ToolCallPart call;
  call.name = DecodedString(name->value);
  if (!IsToolName(call.name)) return std::nullopt;
  const RawMember* arguments = FindMember(members, "arguments");
  if (arguments == nullptr) arguments = FindMember(members, "parameters");
  std::optional<std::string> text =
      ArgumentsText(arguments == nullptr ? "null" : arguments->value);
  if (!text) return std::nullopt;
  call.arguments = *std::move(text);
  return call;
}

bool IsToolName(std::string_view name) {
  constexpr std::string_view kForbidden = "<>{}[]()\"'`\x7f";
  return !name.empty() && name.size() <= kMaxToolNameBytes &&
         std::all_of(name.begin(), name.end(), [&](char byte) {
           return static_cast<unsigned char>(byte) > 0x20 &&
                  kForbidden.find(byte) == kForbidden.npos;
         });
}

}  // namespace tarn
