#include "cli/chat/chat_commands.h"

#include <charconv>
#include <cstdio>

#include "cli/console/suggest.h"
#include "core/text.h"

namespace tarn::cli {
namespace {

struct ChatCommand {
  const char* name;
  const char* argument;  // "": none
  const char* help;
};

constexpr ChatCommand kChatCommands[] = {
    {"/undo", "", "take the last message and its answer back"},
    {"/fork", "", "continue in a copy of the conversation, a new branch"},
    {"/switch", "N", "go to branch N"},
    {"/save", "FILE", "write the conversation, and the state to FILE.state"},
    {"/load", "FILE", "replace the conversation by that of a file"},
    {"/system", "TEXT", "set the system message; without TEXT, none"},
    {"/stats", "", "tokens, speeds, states"},
    {"/help", "", "these commands"},
    {"/quit", "", "end, as the end of input does"},
};

void Tell(const std::string& text) {
  std::fputs((text + "\n").c_str(), stderr);
}

[[noreturn]] void RefuseCommand(const std::string& word) {
  std::vector<std::string> names;
  for (const ChatCommand& command : kChatCommands) {
    names.push_back(command.name);
  }
  throw ArgumentError("message",
                      "a command, or text that does not begin with /",
                      Quoted(word) + DidYouMean(word, names));
}

std::string TrimmedText(const std::string& text) {
  constexpr const char* kWhite = " \t\r\n";
  const size_t begin = text.find_first_not_of(kWhite);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(kWhite) - begin + 1);
}

double RateOf(int64_t count, double milliseconds) {
  return milliseconds > 0 ? 1000 * static_cast<double>(count) / milliseconds
                          : 0;
}

}  // namespace

std::string ChatCommandHelp() {
  std::string help;
  for (const ChatCommand& command : kChatCommands) {
    std::string word = command.name;
    if (command.argument[0] != '\0') word += StrCat(" ", command.argument);
    help += StrCat("  ", word, std::string(14 - word.size(), ' '), command.help,
                   "\n");
  }
  return help;
}

bool ChatBranches::Run(const std::string& line, const ChatTurn& last) {
  const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string word = line.substr(0, end);
  const std::string argument = TrimmedText(line.substr(end));
  const ChatCommand* found = nullptr;
  for (const ChatCommand& command : kChatCommands) {
    if (word == command.name) found = &command;
  }
  if (found == nullptr) RefuseCommand(word);
  if (found->argument[0] == '\0' && !argument.empty()) {
    throw ArgumentError(word, "nothing after it", Quoted(argument));
  }
  if (found->argument[0] != '\0' && argument.empty() && word != "/system") {
    throw ArgumentError(word, found->argument, "nothing");
  }
  if (word == "/quit") return false;
  if (word == "/help") {
    std::fputs(ChatCommandHelp().c_str(), stderr);
  } else if (word == "/undo") {
    Undo();
  } else if (word == "/fork") {
    Fork();
  } else if (word == "/switch") {
    Switch(argument);
  } else if (word == "/stats") {
    Stats(last);
  } else if (word == "/system") {
    current().SetSystem(argument);
    Tell(argument.empty() ? "no system message" : "system message set");
  } else if (word == "/save") {
    current().Save(argument);
    Tell(StrCat("saved ", current().turns(), " turns to ", argument));
  } else {
    const auto unused = current().Load(argument);
    Tell(StrCat("loaded ", current().turns(), " turns"));
    if (unused) {
      Tell(StrCat("the messages will be read again: ", *unused));
    }
  }
  return true;
}

void ChatBranches::Undo() {
  const bool undone = current().Undo();
  Tell(undone ? StrCat("took the last turn back; ", current().turns(), " left")
              : "there is no turn to take back");
}

void ChatBranches::Fork() {
  all_.push_back(current().Fork());
  current_ = all_.size() - 1;
  Tell(StrCat("branch ", all_.size(), ", a copy; /switch N goes back"));
}

void ChatBranches::Switch(const std::string& number) {
  size_t branch = 0;
  const char* end = number.data() + number.size();
  const auto read = std::from_chars(number.data(), end, branch);
  if (read.ec != std::errc() || read.ptr != end || branch < 1 ||
      branch > all_.size()) {
    throw ArgumentError("/switch", StrCat("a branch from 1 to ", all_.size()),
                        Quoted(number));
  }
  current_ = branch - 1;
  Tell(StrCat("branch ", branch, ", ", current().turns(), " turns"));
}

void ChatBranches::Stats(const ChatTurn& last) {
  char rates[128];
  std::snprintf(rates, sizeof(rates), "%.1f tokens/s read, %.1f written",
                RateOf(last.read_tokens, last.prefill_ms),
                RateOf(last.tokens, last.decode_ms));
  Tell(StrCat("branch       ", current_ + 1, " of ", all_.size(), ", ",
              current().turns(), " turns"));
  Tell(StrCat("last turn    ", last.prompt_tokens, " tokens before it, ",
              last.read_tokens, " of them read, ", last.tokens, " written"));
  Tell(StrCat("speed        ", rates));
  Tell(StrCat("state        ", current().position(), " tokens, ",
              current().state_bytes(), " bytes; kept for going back: ",
              current().saved_bytes(), " bytes"));
  const SpeculationCounts drafts = current().speculation();
  if (drafts.drafted == 0) return;
  Tell(StrCat("drafts       ", drafts.accepted, " of ", drafts.drafted,
              " tokens accepted"));
}

}  // namespace tarn::cli
