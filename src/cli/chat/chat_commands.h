// What `tarn chat` does with lines that begin with a slash.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/chat/chat_session.h"

namespace tarn::cli {

/// The conversations of one run: branches, one of which is talked to.
class ChatBranches {
 public:
  explicit ChatBranches(ChatSession first) { all_.push_back(std::move(first)); }
  ChatSession& current() { return all_[current_]; }

  /// Runs a line such as "/undo"; false for /quit. Says on stderr what it did.
  /// last: of the current run, for /stats. Throws ArgumentError for a line that
  /// is no command, and what the command's work throws.
  bool Run(const std::string& line, const ChatTurn& last);

 private:
  void Undo();
  void Fork();
  void Switch(const std::string& number);
  void Stats(const ChatTurn& last);

  std::vector<ChatSession> all_;
  size_t current_ = 0;
};

/// The commands, one a line, for /help and the help of the program.
std::string ChatCommandHelp();

}  // namespace tarn::cli
