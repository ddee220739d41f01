// Conversations in files: the messages as JSON, the state next to them.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "runtime/chat/chat_session.h"
#include "runtime/session/state_file.h"

namespace tarn {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxChatFileBytes = uint64_t{64} << 20;

std::string StatePath(const std::string& path) { return path + ".state"; }

// A member that must be there. Throws FormatError.
const nlohmann::json& Member(const nlohmann::json& object, const char* key,
                             const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) {
    throw FormatError(StrCat(where, ": ", key), "a value", "no such key");
  }
  return *found;
}

std::string TextMember(const nlohmann::json& object, const char* key,
                       const std::string& where) {
  const nlohmann::json& value = Member(object, key, where);
  if (!value.is_string()) {
    throw FormatError(StrCat(where, ": ", key), "a text", JsonGiven(value));
  }
  return value.get<std::string>();
}

const nlohmann::json& ListMember(const nlohmann::json& object, const char* key,
                                 const std::string& where) {
  const nlohmann::json& value = Member(object, key, where);
  if (!value.is_array()) {
    throw FormatError(StrCat(where, ": ", key), "a list", JsonGiven(value));
  }
  return value;
}

// An integer in [0, most]. Throws FormatError.
int64_t Number(const nlohmann::json& value, int64_t most,
               const std::string& where) {
  const std::optional<int64_t> number =
      value.is_number() ? JsonInteger(value) : std::nullopt;
  if (!number || *number < 0 || *number > most) {
    throw FormatError(where, StrCat("an integer from 0 to ", most),
                      JsonGiven(value));
  }
  return *number;
}

void WantKeys(const nlohmann::json& object, const std::set<std::string>& known,
              const std::string& where) {
  if (!object.is_object()) {
    throw FormatError(where, "an object", JsonGiven(object));
  }
  for (const auto& [key, value] : object.items()) {
    if (known.contains(key)) continue;
    throw FormatError(where, "no other keys", Quoted(key));
  }
}

ChatMessage MessageOf(const nlohmann::json& object, const std::string& where) {
  WantKeys(object, {"role", "content", "reasoning"}, where);
  ChatMessage message;
  message.role = TextMember(object, "role", where);
  if (message.role != "system" && message.role != "user" &&
      message.role != "assistant") {
    throw FormatError(where + ": role", "system, user or assistant",
                      Quoted(message.role));
  }
  message.content = TextMember(object, "content", where);
  if (object.contains("reasoning")) {
    message.reasoning = TextMember(object, "reasoning", where);
  }
  return message;
}

}  // namespace

void ChatSession::Save(const std::string& path) const {
  Json root;
  root["format_version"] = 1;
  root["messages"] = Json::array();
  for (const ChatMessage& message : messages_) {
    Json row = {{"role", message.role}, {"content", message.content}};
    if (message.reasoning) row["reasoning"] = *message.reasoning;
    root["messages"].push_back(std::move(row));
  }
  // What the state has read: its ids, and their text where it is known.
  Session written = session_.Fork();
  const int64_t start = NextStart();
  const bool here = start == session_.position();
  if (!here) written.RollBack(start);
  const ReadText read = here ? read_.value_or(ReadText()) : ReadText();
  root["ids"] =
      std::vector<int32_t>(written.tokens().begin(), written.tokens().end());
  root["prompt"] = read.prompt;
  root["prompt_data"] = Json::array();
  for (const ByteRange& range : read.data) {
    root["prompt_data"].push_back({range.begin, range.end});
  }
  root["answer"] = read.answer;
  SaveState(model_->model, written.state(), StatePath(path));
  // An answer cut within a character does not compare equal, and is read again.
  WriteFileAtomically(
      path, root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::optional<std::string> ChatSession::Load(const std::string& path) {
  const std::string text = ReadFile(path, kMaxChatFileBytes).Take();
  const nlohmann::json root =
      ParseStrictJson(text, path, kMaxChatFileBytes).Take();
  WantKeys(
      root,
      {"format_version", "messages", "ids", "prompt", "prompt_data", "answer"},
      path);
  const std::string version = path + ": format_version";
  if (Number(Member(root, "format_version", path), INT32_MAX, version) != 1) {
    throw FormatError(version, "1", JsonGiven(root["format_version"]));
  }
  std::vector<ChatMessage> messages;
  for (const nlohmann::json& row : ListMember(root, "messages", path)) {
    messages.push_back(
        MessageOf(row, StrCat(path, ": messages[", messages.size(), "]")));
  }
  std::vector<int32_t> ids;
  for (const nlohmann::json& id : ListMember(root, "ids", path)) {
    ids.push_back(
        static_cast<int32_t>(Number(id, model_->model.vocab_size() - 1,
                                    StrCat(path, ": ids[", ids.size(), "]"))));
  }
  ReadText read;
  read.prompt = TextMember(root, "prompt", path);
  read.answer = TextMember(root, "answer", path);
  for (const nlohmann::json& pair : ListMember(root, "prompt_data", path)) {
    const std::string where =
        StrCat(path, ": prompt_data[", read.data.size(), "]");
    if (!pair.is_array() || pair.size() != 2) {
      throw FormatError(where, "two offsets", JsonGiven(pair));
    }
    const auto most = static_cast<int64_t>(read.prompt.size());
    read.data.push_back({static_cast<size_t>(Number(pair[0], most, where)),
                         static_cast<size_t>(Number(pair[1], most, where))});
  }

  Result<State> state = LoadState(model_->model, StatePath(path));
  std::optional<std::string> unused;
  if (!state.ok()) {
    unused = state.error().what();
  } else if (state.value().position() != static_cast<int64_t>(ids.size())) {
    unused = StrCat(StatePath(path), ": want a state of ", ids.size(),
                    " tokens, as the messages' file, got ",
                    state.value().position());
  }
  read_.reset();
  session_ = unused ? SessionAt(State(model_->model), {})
                    : SessionAt(state.value(), std::move(ids));
  if (!unused && !read.prompt.empty()) read_ = std::move(read);
  messages_ = std::move(messages);
  return unused;
}

}  // namespace tarn
