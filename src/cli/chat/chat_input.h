// Messages from standard input: a line, or several.
#pragma once

#include <optional>
#include <string>

#include "cli/console/lines.h"

namespace tarn::cli {

/// Reads messages. A line is one, with those after it while a line ends in a
/// backslash; the lines between two lines of """ are one as they are.
class ChatInput {
 public:
  struct Message {
    std::string text;
    bool literal = false;  // from between """: never a command
  };

  ChatInput();
  /// The next message; nothing at the end of input, and when a signal came.
  /// On a terminal it shows a prompt on stderr.
  std::optional<Message> Next();
  bool terminal() const { return terminal_; }

 private:
  bool Line(const char* prompt, std::string& line);

  LineReader lines_;
  bool terminal_;
};

}  // namespace tarn::cli
