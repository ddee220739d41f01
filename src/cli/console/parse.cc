#include "cli/console/parse.h"

#include <charconv>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

#include "cli/cli.h"
#include "cli/console/output.h"
#include "cli/console/suggest.h"

namespace tarn::cli {
namespace {

// The message of the parser, or a better one when an option is not known: the
// parser reports a missing argument first, though a misspelt word is its cause.
std::string Complaint(const CLI::App& app, const CLI::ParseError& error) {
  for (const std::string& word : app.remaining()) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string name = word.substr(0, word.find('='));
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& known_name : option->get_lnames()) {
        known.push_back("--" + known_name);
      }
    }
    return "no option '" + name + "'" + DidYouMean(name, known);
  }
  return error.what();
}

}  // namespace

std::optional<int> ParseArguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    Payload payload(stdout);
    payload.Write(app.help());
    payload.Flush();
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: error: %s\nSee `%s --help`.\n",
                 app.get_name().c_str(), Complaint(app, error).c_str(),
                 app.get_name().c_str());
    return kExitUsage;
  }
}

CLI::Validator WholeNumber(int64_t low, int64_t high) {
  const auto check = [low, high](std::string& text) -> std::string {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    if (read.ec == std::errc() && read.ptr == end && value >= low &&
        value <= high) {
      return "";
    }
    std::string wanted = StrCat("want a whole number from ", low);
    if (high < INT64_MAX) wanted += StrCat(" to ", high);
    return StrCat(wanted, ", got '", text, "'");
  };
  return CLI::Validator(check, "");
}

void DeclareModelFlags(CLI::App& app, int& threads, std::string& weights,
                       bool& json) {
  app.add_option("--threads", threads, "0: as many as there are cores")
      ->check(WholeNumber(0, 1024))
      ->capture_default_str();
  app.add_option("--weights", weights, "how weights are held in memory")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  app.add_flag("--json", json, "one JSON object on stdout");
}

}  // namespace tarn::cli
