// The options of images that `tarn generate` had before `tarn draw` took them:
// still read there, to say which call does it now.
#pragma once

#include <string>

#include "cli/console/parse.h"

namespace tarn::cli {

/// Declares them without a line in the help.
void DeclareMovedOptions(ArgumentParser& parser);

/// Throws ExitError (wrong usage) for the first of them that was given; it
/// names the option and the call of `tarn draw` to make instead.
void RefuseMovedOptions(const ArgumentParser& parser, const std::string& dir);

/// The call of `tarn draw` with the options of this command line that it takes,
/// for a shell.
std::string DrawCall(const ArgumentParser& parser, const std::string& dir);

}  // namespace tarn::cli
