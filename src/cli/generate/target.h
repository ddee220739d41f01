// `tarn generate` with a sequence-to-sequence model.
#pragma once

#include <cstdint>
#include <string>

#include "cli/cli.h"
#include "cli/generate/target_search.h"

namespace tarn::cli {

/// Writes one target for each line of the prompt ("-": of standard input) as
/// soon as it is found; --json: one object a line, with every hypothesis and
/// its score. Returns the exit code.
int GenerateTargets(const LoadedModel& opened, const std::string& prompt,
                    const TargetOptions& options, bool json);

}  // namespace tarn::cli
