#include "cli/chat/chat_screen.h"

#include <unistd.h>

#include <cstdio>

namespace tarn::cli {
namespace {

constexpr char kDim[] = "\x1b[2m";
constexpr char kPlain[] = "\x1b[0m";

// What a terminal may get of a model's text.
std::string WithoutControls(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control =
        (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
    shown += control ? "\xEF\xBF\xBD" : std::string(1, c);
  }
  return shown;
}

}  // namespace

ChatScreen::ChatScreen(bool hide_thinking)
    : payload_(stdout),
      terminal_(isatty(STDOUT_FILENO) != 0),
      hide_thinking_(hide_thinking) {}

void ChatScreen::Write(std::string_view bytes) {
  payload_.Write(terminal_ ? WithoutControls(bytes) : std::string(bytes));
}

void ChatScreen::Begin(AnswerPart part) {
  const bool thinks = part == AnswerPart::kThinking;
  if (thinks == dim_) return;
  Write(stream_.Finish());
  if (terminal_) payload_.Write(thinks ? kDim : kPlain);
  if (!thinks) payload_.Write("\n\n");
  dim_ = thinks;
}

bool ChatScreen::Show(AnswerPart part, std::string_view bytes) {
  if (part == AnswerPart::kThinking && hide_thinking_) {
    return !payload_.reader_gone();
  }
  Begin(part);
  Write(stream_.Push(bytes));
  payload_.FlushIfDue();
  return !payload_.reader_gone();
}

void ChatScreen::EndAnswer() {
  Write(stream_.Finish());
  if (dim_ && terminal_) payload_.Write(kPlain);
  payload_.Write("\n");
  payload_.Flush();
  dim_ = false;
}

}  // namespace tarn::cli
