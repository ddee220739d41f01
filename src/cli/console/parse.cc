#include "cli/console/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include "cli/cli.h"
#include "cli/console/output.h"
#include "cli/console/suggest.h"
#include "core/text.h"
#include "runtime/model/weight_type.h"

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

std::optional<double> NumberOf(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Argument Argument::Required() {
  option_->required();
  return *this;
}

Argument Argument::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

Argument Argument::Whole(int64_t low, int64_t high) {
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
    return StrCat(wanted, ", got ", Quoted(text));
  };
  option_->check(CLI::Validator(check, ""));
  return *this;
}

Argument Argument::Range(double low, double high) {
  const auto check = [low, high](std::string& text) -> std::string {
    const std::optional<double> value = NumberOf(text);
    if (value && *value >= low && *value <= high) return "";
    return StrCat("want a number from ", low, " to ", high, ", got ",
                  Quoted(text));
  };
  option_->check(
      CLI::Validator(check, StrCat("FLOAT in [", low, " - ", high, "]")));
  return *this;
}

Argument Argument::OneOf(const std::vector<std::string>& words) {
  const auto joined = [words](const char* between, const char* last) {
    std::string text;
    for (const std::string& word : words) {
      if (!text.empty()) text += &word == &words.back() ? last : between;
      text += word;
    }
    return text;
  };
  const std::string wanted = joined(", ", " or ");
  const auto check = [words, wanted](std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return "";
    return StrCat("want ", wanted, ", got ", Quoted(text));
  };
  option_->check(CLI::Validator(check, "{" + joined(",", ",") + "}"));
  return *this;
}

Argument Argument::Commas() {
  option_->delimiter(',')->allow_extra_args(false);
  return *this;
}

Argument Argument::OneEachTime() {
  option_->allow_extra_args(false);
  return *this;
}

Argument Argument::Needs(Argument other) {
  option_->needs(other.option_);
  return *this;
}

Argument Argument::Excludes(Argument other) {
  option_->excludes(other.option_);
  return *this;
}

ArgumentParser::ArgumentParser(const std::string& description,
                               const std::string& program)
    : app_(std::make_unique<CLI::App>(description, program)) {}

ArgumentParser::~ArgumentParser() = default;

Argument ArgumentParser::Add(const std::string& name, std::string& value,
                             const std::string& help) {
  return Argument(app_->add_option(name, value, help));
}

Argument ArgumentParser::Add(const std::string& name, int& value,
                             const std::string& help) {
  return Argument(app_->add_option(name, value, help));
}

Argument ArgumentParser::Add(const std::string& name, int64_t& value,
                             const std::string& help) {
  return Argument(app_->add_option(name, value, help));
}

Argument ArgumentParser::Add(const std::string& name, double& value,
                             const std::string& help) {
  CLI::Option* option = app_->add_option(name, value, help);
  option->check(CLI::Validator(
      [](std::string& text) {
        return NumberOf(text) ? ""
                              : StrCat("want a number, got ", Quoted(text));
      },
      ""));
  return Argument(option);
}

Argument ArgumentParser::Add(const std::string& name,
                             std::vector<std::string>& values,
                             const std::string& help) {
  return Argument(app_->add_option(name, values, help));
}

Argument ArgumentParser::Add(const std::string& name,
                             std::vector<int64_t>& values,
                             const std::string& help) {
  return Argument(app_->add_option(name, values, help));
}

Argument ArgumentParser::AddFlag(const std::string& name, bool& value,
                                 const std::string& help) {
  return Argument(app_->add_flag(name, value, help));
}

void ArgumentParser::Footer(const std::string& text) { app_->footer(text); }

std::optional<int> ArgumentParser::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    Payload payload(stdout);
    payload.Write(app_->help());
    payload.Flush();
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: error: %s\nSee `%s --help`.\n",
                 app_->get_name().c_str(), Complaint(*app_, error).c_str(),
                 app_->get_name().c_str());
    return kExitUsage;
  }
}

bool ArgumentParser::Has(const std::string& name) const {
  return app_->count(name) > 0;
}

ModelOptions ModelFlags::Options() const {
  ModelOptions options = {ParseWeightType("--weights", weights), threads, true,
                          exact};
  options.cache = ParseCacheType("--cache", cache);
  return options;
}

void DeclareModelFlags(ArgumentParser& parser, ModelFlags& flags) {
  parser.Add("--threads", flags.threads, "0: as many as there are cores")
      .Whole(0, 1024)
      .ShowDefault();
  parser.Add("--weights", flags.weights, kWeightsHelp)
      .OneOf(WeightTypeWords())
      .ShowDefault();
  parser.AddFlag("--exact", flags.exact, kExactHelp);
}

void DeclareModelFlags(ArgumentParser& parser, ModelFlags& flags, bool& json) {
  DeclareModelFlags(parser, flags);
  parser.AddFlag("--json", json, "one JSON object on stdout");
}

void DeclareCacheFlag(ArgumentParser& parser, ModelFlags& flags) {
  parser
      .Add("--cache", flags.cache,
           "how layers of softmax attention hold keys and values")
      .OneOf(CacheTypeWords())
      .ShowDefault();
}

}  // namespace tarn::cli
