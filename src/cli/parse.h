// The part of command-line parsing that all subcommands share. Included by the
// subcommands only: CLI11 is large.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

namespace tarn::cli {

/// Parses argv[1..]; argv[0] is the subcommand's name. Returns nothing to go
/// on, or the exit code: 0 after --help (on stdout), 2 after one line on stderr
/// that says what is wrong and, for an unknown option, names the nearest.
std::optional<int> ParseArguments(CLI::App& app, int argc, char** argv);

}  // namespace tarn::cli
