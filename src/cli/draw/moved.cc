#include "cli/draw/moved.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "cli/cli.h"

namespace tarn::cli {
namespace {

constexpr std::array<std::string_view, 9> kMoved = {
    "--count",   "--given", "--index", "--pool", "--pixels",
    "--samples", "--first", "--batch", "--out"};
// Options of both commands.
constexpr std::array<std::string_view, 5> kShared = {
    "--temperature", "--seed", "--threads", "--weights", "--json"};

bool IsOneOf(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A word as a shell reads it back.
std::string ShellWord(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "_-./,:=@%+";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace

void DeclareMovedOptions(ArgumentParser& parser) {
  for (const std::string_view name : kMoved) {
    parser.AddUnread(std::string(name)).Hide();
  }
}

std::string DrawCall(const ArgumentParser& parser, const std::string& dir) {
  std::string call = "tarn draw " + ShellWord(dir);
  for (const GivenOption& option : parser.Given()) {
    if (!IsOneOf(kMoved, option.name) && !IsOneOf(kShared, option.name)) {
      continue;
    }
    call += " " + option.name;
    for (const std::string& value : option.values) {
      call += " " + ShellWord(value);
    }
  }
  return call;
}

void RefuseMovedOptions(const ArgumentParser& parser, const std::string& dir) {
  for (const GivenOption& option : parser.Given()) {
    if (!IsOneOf(kMoved, option.name)) continue;
    throw ExitError(
        kExitUsage,
        StrCat(option.name, ": images are drawn by a command of their own: `",
               DrawCall(parser, dir), parser.Has("--out") ? "" : " --out FILE",
               "`"));
  }
}

}  // namespace tarn::cli
