#include "cli/chat/chat_input.h"

#include <unistd.h>

#include <cstdio>

#include "cli/console/signals.h"

namespace tarn::cli {
namespace {

constexpr char kPrompt[] = "> ";
constexpr char kMorePrompt[] = "| ";
constexpr char kFence[] = "\"\"\"";

}  // namespace

ChatInput::ChatInput() : lines_("-"), terminal_(isatty(STDIN_FILENO) != 0) {}

bool ChatInput::Line(const char* prompt, std::string& line) {
  if (terminal_) std::fputs(prompt, stderr);
  return lines_.Next(line);
}

std::optional<ChatInput::Message> ChatInput::Next() {
  Message message;
  std::string line;
  if (!Line(kPrompt, line)) return std::nullopt;
  if (line == kFence) {
    message.literal = true;
    for (bool first = true; Line(kMorePrompt, line); first = false) {
      if (line == kFence) return message;
      message.text += (first ? "" : "\n") + line;
    }
    // The input ended within the message, or a signal took it back.
    if (PendingSignal() != 0) return std::nullopt;
    return message;
  }
  while (line.ends_with('\\')) {
    line.back() = '\n';
    message.text += line;
    line.clear();
    if (!Line(kMorePrompt, line)) break;
  }
  if (PendingSignal() != 0) return std::nullopt;
  message.text += line;
  return message;
}

}  // namespace tarn::cli
