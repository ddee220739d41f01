// Sessions of commands: of a file, and with draft tokens.
#pragma once

#include <string>

#include "runtime/session/session.h"
#include "runtime/speculate/drafts.h"

namespace tarn::cli {

/// The session of a file, or a new one for an empty path. Throws
/// ExitError(kExitBadModel) for a file that is not one of this model, and
/// IoError.
Session OpenSession(const LoadedModel& model, const std::string& path);

/// Drafts::Open for --speculate. Throws ExitError(kExitUsage) for a draft model
/// that does not fit and ExitError(kExitBadModel) for one that does not open.
Drafts OpenDrafts(const std::string& word, const LoadedModel& model,
                  const ModelOptions& options);

}  // namespace tarn::cli
