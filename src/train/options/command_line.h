// From argv to options by name, and the help text.
#pragma once

#include <string>
#include <vector>

#include "train/options/options.h"

namespace tarn::train {

struct CommandLine {
  Given given;        // in the order given, names in words of config.json
  bool help = false;  // --help or -h was among the arguments
};

/// Reads "--name value", "--name=value", "--data FILE FILE..." and switches.
/// Throws ArgumentError for an argument that is no flag (naming the nearest
/// flag), a flag without its value and a value without a flag.
CommandLine ParseCommandLine(const std::vector<std::string>& arguments);

/// What --help prints: every flag with its default, presets, examples.
/// program: how the user calls it, "tarn train".
std::string HelpText(const std::string& program);

}  // namespace tarn::train
