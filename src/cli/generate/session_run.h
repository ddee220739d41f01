// `tarn generate` with a session that is loaded from a file or saved to one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/generate/generate.h"
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

/// tarn::Generate for a session: the prompt is read after what the session has
/// read, and nothing of that again. An empty prompt continues it.
GenerateResult GenerateWith(Session& session, std::span<const int32_t> prompt,
                            const GenerateOptions& options,
                            const TokenSink& sink, const StopCheck& stop);

}  // namespace tarn::cli
