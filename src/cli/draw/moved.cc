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
// Of both commands.
constexpr std::array<std::string_view, 5> kShared = {
    "--temperature", "--seed", "--threads", "--weights", "--json"};

bool IsOneOf(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "--count"; a hidden option gives none by its get_name(), a positional has no
// such name.
std::string NameOf(const CLI::Option& option) {
  const auto& names = option.get_lnames();
  return names.empty() ? "" : "--" + names.front();
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

void DeclareMovedOptions(CLI::App& app) {
  for (const std::string_view name : kMoved) {
    app.add_option_function<std::string>(std::string(name),
                                         [](const std::string&) {})
        ->group("");
  }
}

std::string DrawCall(const CLI::App& app, const std::string& dir) {
  std::string call = "tarn draw " + ShellWord(dir);
  for (const CLI::Option* option : app.parse_order()) {
    const std::string name = NameOf(*option);
    const bool flag = option->get_items_expected() == 0;
    if (!IsOneOf(kMoved, name) && !IsOneOf(kShared, name)) {
      continue;
    }
    call += " " + name;
    if (flag) continue;
    for (const std::string& value : option->results()) {
      call += " " + ShellWord(value);
    }
  }
  return call;
}

void RefuseMovedOptions(const CLI::App& app, const std::string& dir) {
  for (const CLI::Option* option : app.parse_order()) {
    if (!IsOneOf(kMoved, NameOf(*option))) continue;
    throw ExitError(kExitUsage,
                    StrCat(NameOf(*option),
                           ": images are drawn by a command of their own: `",
                           DrawCall(app, dir),
                           app.count("--out") > 0 ? "" : " --out FILE", "`"));
  }
}

}  // namespace tarn::cli
