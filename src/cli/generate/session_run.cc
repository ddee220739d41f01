#include "cli/generate/session_run.h"

#include <string>
#include <utility>

#include "cli/cli.h"
#include "runtime/session/session_file.h"

namespace tarn::cli {

Session OpenSession(const LoadedModel& model, const std::string& path) {
  if (path.empty()) return Session(model);
  Result<Session> loaded = LoadSession(model, path);
  if (loaded.ok()) return std::move(loaded).Take();
  throw ExitError(kExitBadModel, StrCat("--load: ", loaded.error().what()));
}

Drafts OpenDrafts(const std::string& word, const LoadedModel& model,
                  const ModelOptions& options) {
  try {
    Result<Drafts> drafts = Drafts::Open(word, model, options);
    if (drafts.ok()) return std::move(drafts).Take();
    throw ExitError(kExitBadModel,
                    StrCat("--speculate: ", drafts.error().what()));
  } catch (const ArgumentError& error) {
    throw ExitError(kExitUsage, StrCat("--speculate: ", error.what()));
  }
}

}  // namespace tarn::cli
