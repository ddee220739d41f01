// The part of command-line parsing that all subcommands share, and all that
// they see of the parser: parse.cc alone includes CLI11, which costs seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model/model.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tarn::cli {

/// One option, flag or positional of a parser: a handle, cheap to copy, valid
/// as long as the parser is.
class Argument {
 public:
  Argument Required();
  /// The help shows the value that the variable has now.
  Argument ShowDefault();
  /// Takes only whole numbers from `low` to `high`. (The parser by itself takes
  /// what is too large for 64 bits as the largest it can hold.)
  Argument Whole(int64_t low, int64_t high);
  Argument Range(double low, double high);
  Argument OneOf(const std::vector<std::string>& words);
  /// For a list: one word holds all of it, with commas between the values.
  Argument Commas();
  /// For a list: one value each time that the option is given.
  Argument OneEachTime();
  Argument Needs(Argument other);
  Argument Excludes(Argument other);

 private:
  friend class ArgumentParser;
  explicit Argument(CLI::Option* option) : option_(option) {}
  CLI::Option* option_;
};

/// The arguments of one subcommand. The variables are written by Parse and must
/// outlive it; what they hold before is the default.
class ArgumentParser {
 public:
  /// program: how the user calls it, "tarn eval".
  ArgumentParser(const std::string& description, const std::string& program);
  ~ArgumentParser();
  ArgumentParser(const ArgumentParser&) = delete;
  ArgumentParser& operator=(const ArgumentParser&) = delete;

  /// name: "-p,--n-prompt", or "DIR" for a positional.
  Argument Add(const std::string& name, std::string& value,
               const std::string& help);
  Argument Add(const std::string& name, int& value, const std::string& help);
  Argument Add(const std::string& name, int64_t& value,
               const std::string& help);
  Argument Add(const std::string& name, double& value, const std::string& help);
  Argument Add(const std::string& name, std::vector<std::string>& values,
               const std::string& help);
  Argument Add(const std::string& name, std::vector<int64_t>& values,
               const std::string& help);
  Argument AddFlag(const std::string& name, bool& value,
                   const std::string& help);
  /// Below the options in the help.
  void Footer(const std::string& text);

  /// Parses argv[1..]; argv[0] is the subcommand's name. Returns nothing if the
  /// command is to go on, else the exit code: 0 after --help (on stdout), 2
  /// after one line on stderr that says what is wrong and, for an unknown
  /// option, names the nearest.
  std::optional<int> Parse(int argc, char** argv);

  /// After Parse: whether this one was given.
  bool Has(const std::string& name) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

/// How a subcommand opens a model.
struct ModelFlags {
  int threads = 0;
  std::string weights = "auto";
  bool exact = false;
  std::string cache = "f32";

  ModelOptions Options() const;
};

/// --threads, --weights and --exact, of every subcommand that runs a model.
void DeclareModelFlags(ArgumentParser& parser, ModelFlags& flags);
/// The same and --json.
void DeclareModelFlags(ArgumentParser& parser, ModelFlags& flags, bool& json);
/// --cache, of those whose models have states.
void DeclareCacheFlag(ArgumentParser& parser, ModelFlags& flags);
/// What --weights says of its words, and --exact of itself.
inline constexpr const char* kWeightsHelp =
    "how weights are held in memory; auto: as they are stored in "
    "groups or as bf16, or else as f32";
inline constexpr const char* kExactHelp =
    "products of int8 and int4 weights in float32, slower";

}  // namespace tarn::cli
