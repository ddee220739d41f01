// Commands whose work another program does.
#pragma once

namespace tarn::cli {

/// Becomes `program` with these arguments, from the first place that holds it:
/// next to this program, in libexec or on PATH, as git finds its commands.
/// Returns only where there is none: writes `missing` to stderr and returns
/// kExitFailure. Throws IoError where it does not run.
int HandOver(const char* program, const char* missing, int argc, char** argv);

}  // namespace tarn::cli
