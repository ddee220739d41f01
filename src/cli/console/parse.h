// The part of command-line parsing that all subcommands share. Included by the
// subcommands only: CLI11 is large.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

namespace tarn::cli {

/// Parses argv[1..]; argv[0] is the subcommand's name. Returns nothing to go
/// on, or the exit code: 0 after --help (on stdout), 2 after one line on stderr
/// that says what is wrong and, for an unknown option, names the nearest.
std::optional<int> ParseArguments(CLI::App& app, int argc, char** argv);

/// Accepts whole numbers from `low` to `high`. (The parser by itself takes what
/// is too large for 64 bits as the largest it can hold.)
CLI::Validator WholeNumber(int64_t low, int64_t high);

/// --threads, --weights and --json, of every subcommand that runs a model.
void DeclareModelFlags(CLI::App& app, int& threads, std::string& weights,
                       bool& json);

}  // namespace tarn::cli
