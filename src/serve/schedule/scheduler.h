// Many texts of one model at once: one step serves them all, prompts run in
// slices between steps, and what has been read is not read again.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/session/draft.h"
#include "runtime/session/prefix_cache.h"
#include "runtime/state/spare_floats.h"
#include "serve/schedule/text_request.h"

namespace tarn::serve {

struct SchedulerOptions {
  int64_t slots = 64;  // texts that are written at once, 1 to 256
  int64_t queue = 64;  // requests that wait, 0 to 65,536
  int64_t cache_bytes = int64_t{256} << 20;  // of the prefix cache
  /// Time that prompts take between two steps of the texts being written, so
  /// the longest that a stream stands still. 1 to 10,000.
  double prompt_slice_ms = 50;
  SnapshotOptions snapshots = {};
  /// Makes the guesses of a session (Session::Speculate), which are read where
  /// one text is written alone; none: no guesses.
  std::function<std::unique_ptr<DraftSource>()> drafts = {};
};

/// No room for another request.
class QueueFull : public Error {
 public:
  explicit QueueFull(int64_t queue)
      : Error(ErrorCode::kInternal, "queue",
              StrCat("at most ", queue, " waiting requests"), "one more") {}
};

/// What it has done since it was made.
struct SchedulerCounts {
  uint64_t requests = 0, rejected = 0, cancelled = 0, failed = 0;
  uint64_t prompt_tokens = 0, prompt_computed = 0, text_tokens = 0;
  uint64_t steps = 0, step_rows = 0;   // calls of the model, their sequences
  uint64_t drafted = 0, accepted = 0;  // tokens read ahead, and the right ones
  double model_ms = 0;
  int64_t running = 0, waiting = 0;
  PrefixCacheCounts cache;
  int64_t cache_bytes = 0, cache_states = 0;
};

/// Has one thread, which runs the model, owns the sessions and calls the sinks.
/// Refers to the model. Every public method is thread-safe.
class Scheduler {
 public:
  /// Throws ArgumentError for options out of range and for a model that writes
  /// no text.
  Scheduler(const LoadedModel& model, const SchedulerOptions& options);
  /// Ends all requests as cancelled.
  ~Scheduler();

  const LoadedModel& model() const { return model_; }
  const SchedulerOptions& options() const { return options_; }

  /// Takes a request. Throws QueueFull, and ArgumentError for one that the
  /// model cannot serve, with the sink not called.
  std::shared_ptr<Ticket> Submit(TextRequest request);
  /// All of them or none.
  void Submit(std::vector<TextRequest> requests);
  /// Runs a function on the scheduler's thread, between two steps: the only
  /// place where held sessions may be touched. It must not throw.
  void Post(std::function<void()> function);
  /// The same; waits for its end and gives its result or error.
  void Run(const std::function<void()>& function);

  /// Ends every request, running or waiting, as cancelled.
  void CancelAll();
  /// Waits until no request runs or waits and nothing is posted: then no sink
  /// is left.
  void WaitIdle();

  SchedulerCounts counts() const;

 private:
  struct Choice;
  struct Active;

  void Check(const TextRequest& request) const;
  void Loop();
  void TakePosted(std::unique_lock<std::mutex>& lock);
  void PrepareSpare(std::unique_lock<std::mutex>& lock);
  void Admit(std::unique_lock<std::mutex>& lock);
  void Start(Active& active);
  void DropCancelled();
  void DrawTokens();
  void DrawChoice(Active& active, Choice& choice);
  void RunStep();
  void PromptDone(Active& active);
  void EndChoice(Active& active, Choice& choice, bool cancelled);
  void Finish(Active& active);
  void Fail(Active& active, const Error& error);
  void GiveBack(Active& active, bool cancelled);
  int64_t PromptBudget() const;
  void EraseDone();
  int64_t AddPromptJobs(Active& active, int64_t budget, std::vector<Job>& jobs,
                        std::vector<std::pair<Active*, Session*>>& whose);
  void VectorJobsDone(Active& active);
  int64_t ScoredTokens() const;
  void TellPrompt(Active& active, const Job& job);

  const LoadedModel& model_;
  const SchedulerOptions options_;
  PrefixCache cache_;                             // the thread's
  std::optional<SpareFloats::Allowance> spare_;   // states of texts that ended
  std::vector<std::unique_ptr<Active>> running_;  // the thread's
  double token_ms_ = 0;  // of a prompt's token, estimated from recent steps
  size_t next_prompt_ = 0;

  mutable std::mutex turn_;  // guards what follows
  std::condition_variable wake_, idle_wake_;
  std::deque<std::unique_ptr<Active>> waiting_;
  std::vector<std::function<void()>> posted_;
  SchedulerCounts counts_;
  bool stopping_ = false, idle_ = false;

  std::thread thread_;
};

}  // namespace tarn::serve
