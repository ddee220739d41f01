#include "runtime/chat/turn_end.h"

#include <algorithm>

#include "runtime/session/stop_texts.h"

namespace tarn {
namespace {

// What comes after an answer in a conversation that continues; "": not known.
std::string TextAfterAnswer(const ChatFormat& format,
                            const RenderOptions& options) {
  constexpr char kAnswer[] = "tarn-answer";
  Chat chat;
  chat.messages.push_back({.role = "user", .content = "tarn-question"});
  chat.messages.push_back({.role = "assistant", .content = kAnswer});
  chat.messages.push_back({.role = "user", .content = "tarn-question"});
  const Result<RenderedText> text = format.Render(chat, options);
  if (!text.ok()) return "";
  const std::vector<RenderedPiece>& pieces = text.value().pieces;
  for (size_t i = 0; i + 1 < pieces.size(); ++i) {
    if (pieces[i].from_data && pieces[i].text.ends_with(kAnswer)) {
      return pieces[i + 1].text;
    }
  }
  return "";
}

}  // namespace

bool IsAddedToken(const Tokenizer& tokenizer, int32_t token) {
  std::string text;
  tokenizer.Decode(token, text);
  return !text.empty() && tokenizer.AddedId(text) == token;
}

TurnEnds TurnEndsOf(const ChatFormat& format, const Tokenizer& tokenizer,
                    const RenderOptions& options) {
  TurnEnds ends;
  for (const auto& [name, text] : format.special_texts) {
    const int32_t token = tokenizer.AddedId(text);
    if (name == "eos_token" && token >= 0) ends.tokens.push_back(token);
  }
  std::string after = TextAfterAnswer(format, options);
  EncodeOptions special;
  special.allow_special = true;
  const auto ids = tokenizer.Encode(after, special);
  if (!ids.ok()) return ends;
  const auto first =
      std::find_if(ids.value().begin(), ids.value().end(),
                   [&](int32_t id) { return IsAddedToken(tokenizer, id); });
  if (first != ids.value().end()) {
    ends.tokens.push_back(*first);
    return ends;
  }
  after.erase(after.find_last_not_of(" \t\r\n") + 1);
  if (!after.empty() && after.size() <= kMaxStopBytes) {
    ends.texts.push_back(after);
  }
  return ends;
}

}  // namespace tarn
