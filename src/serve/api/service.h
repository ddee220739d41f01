// The models that a server has, and what a request needs to know of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/chat/turn_end.h"
#include "runtime/session/loaded_model.h"
#include "runtime/speculate/drafts.h"
#include "serve/api/constraints.h"
#include "serve/api/work_queue.h"
#include "serve/schedule/scheduler.h"
#include "serve/sessions/session_store.h"
#include "text/template/chat_format.h"

namespace tarn::serve {

struct ServiceOptions {
  SchedulerOptions scheduler;
  SessionStoreOptions sessions;
  /// Tokens of a text whose request names no number.
  int64_t max_tokens = 4096;
  /// Of a prompt, in tokens; 0: any number that the model has room for.
  int64_t max_prompt_tokens = 0;
  std::string speculate = kNoGuesses;  // Drafts::Open
};

/// A model under the name that requests give it.
struct ServedModel {
  /// Throws ArgumentError for a model that writes no text, and as Drafts::Open.
  ServedModel(std::string name, LoadedModel model,
              std::optional<ChatFormat> format, const ServiceOptions& options);

  const std::string name;
  const LoadedModel loaded;
  const std::optional<ChatFormat> format;  // none: no chat template
  const TurnEnds ends;
  const int64_t created;  // seconds of the system's clock
  const ServiceOptions options;
  const Drafts drafts;
  std::unique_ptr<ConstraintCache> constraints;
  std::unique_ptr<SessionStore> sessions;  // the scheduler's thread's
  std::unique_ptr<Scheduler> scheduler;    // ends first
};

/// A request for a model that is not there.
class NoSuchModel : public Error {
 public:
  explicit NoSuchModel(const std::string& name);
};

/// Immutable once made; thread-safe. Must outlive what its queue runs.
class Service {
 public:
  explicit Service(std::vector<std::unique_ptr<ServedModel>> models);
  ~Service();
  const std::vector<std::unique_ptr<ServedModel>>& models() const {
    return models_;
  }
  /// The model of this name; with one model alone, whatever the name is, as
  /// clients have names of their own. Throws NoSuchModel.
  ServedModel& Find(const std::optional<std::string>& name) const;
  /// For all of a request that comes before its text.
  WorkQueue& work() { return work_; }
  /// Runs what is under way to its end, with all texts cancelled. Then nothing
  /// here refers to a response.
  void Settle();

 private:
  WorkQueue work_;  // ends last: sinks of the schedulers use it
  std::vector<std::unique_ptr<ServedModel>> models_;
};

}  // namespace tarn::serve
