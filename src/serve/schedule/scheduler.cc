#include "serve/schedule/scheduler.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <utility>

namespace tarn::serve {
namespace {

using Clock = std::chrono::steady_clock;

// A prompt's least part of a step, however slow the model.
constexpr int64_t kLeastPromptTokens = 16;
// Before the first step has shown how long a token takes.
constexpr int64_t kFirstPromptTokens = 64;
// The largest block that one call of the model runs without the lock.
constexpr int64_t kMostPromptTokens = 2048;
// Logits of a prompt that is told, in a step: 8 MiB.
constexpr int64_t kScoredFloats = int64_t{2} << 20;
// Tokens of a step of one text, guesses included.
constexpr int64_t kMostGuessed = 64;
// The memory of this many states for each slot, a text's own and its snapshots,
// is kept for the next texts.
constexpr int64_t kSpareStates = 4;
// It is given back to the system this long after the last text.
constexpr std::chrono::seconds kSpareTime{60};

double Milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

void CheckOptions(const SchedulerOptions& options) {
  const auto check = [](const char* name, int64_t value, int64_t least,
                        int64_t most) {
    if (value >= least && value <= most) return;
    throw ArgumentError(name, StrCat(least, " to ", most), StrCat(value));
  };
  check("slots", options.slots, 1, 256);
  check("queue", options.queue, 0, 65536);
  if (!(options.prompt_slice_ms >= 1 && options.prompt_slice_ms <= 10000)) {
    throw ArgumentError("prompt_slice_ms", "1 to 10000",
                        StrCat(options.prompt_slice_ms));
  }
}

}  // namespace

// One text of a request.
struct Scheduler::Choice {
  Session* session = nullptr;
  bool ended = false;
};

struct Scheduler::Active {
  TextRequest request;
  std::shared_ptr<Ticket> ticket;
  Clock::time_point submitted = Clock::now(), started, prompt_done;
  TextUsage usage;
  std::vector<std::unique_ptr<Session>> own;  // sessions of its choices
  std::vector<Choice> choices;        // one until the prompt has been read
  std::unique_ptr<Embedder> vectors;  // of a request for them; it has no choice
  std::vector<float> prompt_logits;   // of a step, where the prompt is told
  int64_t began_at = 0;               // position of a held session
  bool reading = true;                // the prompt
  bool told_token = false;
  bool done = false;
};

Scheduler::Scheduler(const LoadedModel& model, const SchedulerOptions& options)
    : model_(model), options_(options), cache_(options.cache_bytes) {
  CheckOptions(options);
  const Session checked(model, options.snapshots);  // throws
  spare_.emplace(options.slots * kSpareStates * checked.state_bytes());
  thread_ = std::thread([this] { Loop(); });
}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(turn_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

// Whatever Begin would refuse is refused here, before it waits.
void Scheduler::Check(const TextRequest& request) const {
  Sequence checked(model_.tokenizer, request.options);
  checked.Begin(request.prompt, request.max_tokens);
  if (request.choices < 1 || request.choices > options_.slots) {
    throw ArgumentError("n", StrCat("1 to ", options_.slots),
                        StrCat(request.choices));
  }
  if (!request.inputs.empty()) {
    CheckTexts(model_.model, request.inputs);
    return;
  }
  if (request.score_prompt && request.session != nullptr) {
    throw ArgumentError("score_prompt", "a request without a session",
                        "one with a session");
  }
  if (request.prompt.empty() && request.session == nullptr) {
    throw ArgumentError("prompt", "at least one token", "none");
  }
  for (const int32_t token : request.prompt) {
    if (token >= 0 && token < model_.model.vocab_size()) continue;
    throw ArgumentError("prompt",
                        StrCat("token ids below ", model_.model.vocab_size()),
                        StrCat(token));
  }
}

std::shared_ptr<Ticket> Scheduler::Submit(TextRequest request) {
  const std::shared_ptr<Ticket> ticket = request.ticket;
  std::vector<TextRequest> one;
  one.push_back(std::move(request));
  Submit(std::move(one));
  return ticket;
}

void Scheduler::Submit(std::vector<TextRequest> requests) {
  std::vector<std::unique_ptr<Active>> all;
  for (TextRequest& request : requests) {
    Check(request);
    auto active = std::make_unique<Active>();
    active->ticket = request.ticket;
    active->request = std::move(request);
    all.push_back(std::move(active));
  }
  {
    const std::lock_guard lock(turn_);
    if (static_cast<int64_t>(waiting_.size() + all.size()) > options_.queue) {
      counts_.rejected += all.size();
      throw QueueFull(options_.queue);
    }
    counts_.requests += all.size();
    for (auto& active : all) waiting_.push_back(std::move(active));
  }
  wake_.notify_all();
}

void Scheduler::Post(std::function<void()> function) {
  {
    const std::lock_guard lock(turn_);
    posted_.push_back(std::move(function));
  }
  wake_.notify_all();
}

void Scheduler::Run(const std::function<void()>& function) {
  std::exception_ptr error;
  bool done = false;
  std::mutex turn;
  std::condition_variable ready;
  Post([&] {
    try {
      function();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(turn);
    done = true;
    ready.notify_all();
  });
  std::unique_lock lock(turn);
  ready.wait(lock, [&] { return done; });
  if (error) std::rethrow_exception(error);
}

void Scheduler::CancelAll() {
  Post([this] {
    for (const auto& active : running_) active->ticket->Cancel();
  });
  const std::lock_guard lock(turn_);
  for (const auto& active : waiting_) active->ticket->Cancel();
}

void Scheduler::WaitIdle() {
  std::unique_lock lock(turn_);
  idle_wake_.wait(lock,
                  [&] { return idle_ && posted_.empty() && waiting_.empty(); });
}

SchedulerCounts Scheduler::counts() const {
  const std::lock_guard lock(turn_);
  SchedulerCounts counts = counts_;
  counts.waiting = static_cast<int64_t>(waiting_.size());
  return counts;
}

void Scheduler::Loop() {
  while (true) {
    {
      std::unique_lock lock(turn_);
      idle_ = running_.empty();
      if (idle_) idle_wake_.notify_all();
      const auto work = [&] {
        return stopping_ || !posted_.empty() || !waiting_.empty() ||
               !running_.empty();
      };
      if (!work()) PrepareSpare(lock);
      // By the system's clock, since waits by the steady one need glibc 2.30.
      if (!wake_.wait_until(lock, std::chrono::system_clock::now() + kSpareTime,
                            work)) {
        SpareFloats::Clear();
        wake_.wait(lock, work);
      }
      idle_ = false;
      TakePosted(lock);
      if (stopping_) break;
      Admit(lock);
      counts_.running = static_cast<int64_t>(running_.size());
      counts_.cache = cache_.counts();
      counts_.cache_states = cache_.states();
    }
    DropCancelled();
    DrawTokens();
    RunStep();
    EraseDone();
  }
  // Nobody waits for an answer that does not come.
  std::unique_lock lock(turn_);
  for (auto& active : waiting_) running_.push_back(std::move(active));
  waiting_.clear();
  lock.unlock();
  for (auto& active : running_) active->ticket->Cancel();
  DropCancelled();
  EraseDone();
  lock.lock();
  TakePosted(lock);
}

// The next text will need memory for a state of its own, whose first use would
// delay its first token.
void Scheduler::PrepareSpare(std::unique_lock<std::mutex>& lock) {
  if (SpareFloats::bytes() > 0) return;
  lock.unlock();
  try {
    model_.model.PrepareState();
  } catch (const std::bad_alloc&) {
    // Then the next text has to take it.
  }
  lock.lock();
}

// Runs what was posted, without the lock.
void Scheduler::TakePosted(std::unique_lock<std::mutex>& lock) {
  while (!posted_.empty()) {
    std::vector<std::function<void()>> functions;
    functions.swap(posted_);
    lock.unlock();
    for (const auto& function : functions) function();
    lock.lock();
  }
}

// Waiting requests become running ones while there are slots for all of their
// choices. The next one is the first of the space that has the fewest texts
// running; where it has no room, it keeps its turn.
void Scheduler::Admit(std::unique_lock<std::mutex>& lock) {
  int64_t used = 0;
  std::map<std::string, int64_t> texts;  // by space
  for (const auto& active : running_) {
    used += active->request.choices;
    texts[active->request.space] += active->request.choices;
  }
  while (!waiting_.empty()) {
    const auto next = std::min_element(
        waiting_.begin(), waiting_.end(), [&](const auto& a, const auto& b) {
          return texts[a->request.space] < texts[b->request.space];
        });
    const int64_t choices = (*next)->request.choices;
    if (used + choices > options_.slots) return;
    std::unique_ptr<Active> active = std::move(*next);
    waiting_.erase(next);
    used += choices;
    texts[active->request.space] += choices;
    lock.unlock();
    Start(*active);
    running_.push_back(std::move(active));
    lock.lock();
  }
}

void Scheduler::Start(Active& active) {
  active.started = Clock::now();
  active.usage.queue_ms = Milliseconds(active.submitted, active.started);
  if (active.ticket->cancelled()) return;
  active.request.sink->Started();
  TextRequest& request = active.request;
  try {
    if (!request.inputs.empty()) {
      active.vectors = std::make_unique<Embedder>(
          model_.model, std::move(request.inputs), request.pooling);
      active.usage.prompt_tokens = active.vectors->tokens();
      active.usage.prompt_computed = active.vectors->tokens();
      return;
    }
    Session* session = nullptr;
    std::span<const int32_t> prompt = request.prompt;
    if (request.session != nullptr) {
      HeldSession& held = *request.session;
      if (held.busy || !held.session) {
        throw ArgumentError("session", "one that rests",
                            held.busy ? "one in use" : "a parked one");
      }
      session = &*held.session;
      if (prompt.empty() && session->position() == 0 &&
          session->pending().empty()) {
        throw ArgumentError(
            "text", "at least one token for a session without any", "none");
      }
      active.began_at = session->position();
      active.usage.prompt_tokens = session->position();
      active.usage.cached_tokens = session->position();
    } else {
      active.own.push_back(
          std::make_unique<Session>(model_, options_.snapshots));
      session = active.own.back().get();
      if (request.score_prompt) {
        const int64_t rows = std::min(ScoredTokens(), std::ssize(prompt));
        active.prompt_logits.resize(
            static_cast<size_t>(rows * model_.model.n_outputs()));
      } else if (request.cache_prompt) {
        const int64_t known = cache_.Restore(request.space, prompt, *session);
        active.usage.cached_tokens = known;
        active.usage.prompt_tokens = known;
        prompt = prompt.subspan(static_cast<size_t>(known));
      }
    }
    if (options_.drafts) session->Speculate(options_.drafts());
    session->Begin(prompt, request.options, request.max_tokens);
    active.usage.prompt_computed =
        static_cast<int64_t>(session->pending().size());
    active.usage.prompt_tokens += active.usage.prompt_computed;
    if (request.session != nullptr) request.session->busy = true;
    active.choices.push_back({session});
    if (session->pending().empty()) PromptDone(active);
  } catch (const Error& error) {
    Fail(active, error);
  } catch (const std::exception& error) {
    Fail(active, Error(ErrorCode::kInternal, error.what()));
  }
}

void Scheduler::DropCancelled() {
  for (auto& active : running_) {
    if (active->done || !active->ticket->cancelled()) continue;
    for (size_t i = 0; i < active->choices.size(); ++i) {
      Choice& choice = active->choices[i];
      if (!choice.ended) EndChoice(*active, choice, /*cancelled=*/true);
    }
    Finish(*active);
  }
}

// Every text whose tokens are all consumed gets its next one.
void Scheduler::DrawTokens() {
  for (auto& active : running_) {
    if (active->done || active->reading) continue;
    try {
      for (Choice& choice : active->choices) DrawChoice(*active, choice);
    } catch (const Error& error) {
      Fail(*active, error);
      continue;
    }
    if (std::all_of(active->choices.begin(), active->choices.end(),
                    [](const Choice& c) { return c.ended; })) {
      Finish(*active);
    }
  }
}

// One token, or as many as were guessed and are right.
void Scheduler::DrawChoice(Active& active, Choice& choice) {
  Session& session = *choice.session;
  while (!choice.ended && session.pending().empty() &&
         !active.ticket->cancelled()) {
    if (!session.text()->ended()) {
      const int32_t token = session.Draw();
      if (token < 0) {  // the grammar's text ended without a token
        EndChoice(active, choice, /*cancelled=*/false);
        return;
      }
      ++active.usage.text_tokens;
      if (!std::exchange(active.told_token, true)) {
        active.usage.first_token_ms =
            Milliseconds(active.submitted, Clock::now());
      }
      active.request.sink->Token({&choice - active.choices.data(), token,
                                  session.text()->text(),
                                  session.drawn_from()});
    }
    if (session.text()->ended()) EndChoice(active, choice, false);
  }
}

// Tokens of prompts in the next step: as many as fit the slice where texts are
// being written, and a large block where none is.
int64_t Scheduler::PromptBudget() const {
  const bool writing = std::any_of(
      running_.begin(), running_.end(),
      [](const auto& active) { return !active->done && !active->reading; });
  if (token_ms_ <= 0) return kFirstPromptTokens;
  const double slice = options_.prompt_slice_ms * (writing ? 1 : 4);
  return std::clamp(static_cast<int64_t>(slice / token_ms_), kLeastPromptTokens,
                    kMostPromptTokens);
}

void Scheduler::RunStep() {
  std::vector<Job> jobs;
  std::vector<std::pair<Active*, Session*>> whose;
  for (auto& active : running_) {
    if (active->done || active->reading) continue;
    for (Choice& choice : active->choices) {
      if (choice.ended || choice.session->pending().empty()) continue;
      whose.push_back({active.get(), choice.session});
    }
  }
  // Guesses are rows of the step, which other texts make better use of.
  const bool alone = whose.size() == 1;
  for (auto& [active, session] : whose) {
    const auto waiting = static_cast<int64_t>(session->pending().size());
    jobs.push_back(session->NextJob(alone ? kMostGuessed : waiting));
  }
  // The prompts share a slice, beginning with another one each time.
  int64_t budget = PromptBudget(), prompt_tokens = 0;
  const size_t count = running_.size();
  for (size_t i = 0; i < count && budget > 0; ++i) {
    Active& active = *running_[(next_prompt_ + i) % count];
    if (active.done || !active.reading) continue;
    const int64_t tokens = AddPromptJobs(active, budget, jobs, whose);
    budget -= tokens;
    prompt_tokens += tokens;
  }
  ++next_prompt_;
  if (jobs.empty()) return;
  const Clock::time_point begun = Clock::now();
  try {
    model_.model.StepBatch(jobs);
  } catch (const Error& error) {
    // What one of them cannot have, such as memory, none of them got.
    for (auto& [active, session] : whose) {
      if (!active->done) Fail(*active, error);
    }
    return;
  } catch (const std::exception& error) {
    for (auto& [active, session] : whose) {
      if (active->done) continue;
      Fail(*active, Error(ErrorCode::kInternal, error.what()));
    }
    return;
  }
  const double took = Milliseconds(begun, Clock::now());
  if (prompt_tokens >= kLeastPromptTokens) {
    const double one = took / static_cast<double>(prompt_tokens);
    token_ms_ = token_ms_ <= 0 ? one : 0.7 * token_ms_ + 0.3 * one;
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    Active& active = *whose[i].first;
    if (active.vectors != nullptr) {
      VectorJobsDone(active);
      continue;
    }
    if (active.reading && active.request.score_prompt) {
      TellPrompt(active, jobs[i]);
      if (active.done) continue;
    }
    whose[i].second->JobDone(jobs[i], jobs.size() == 1 ? took : 0);
    if (active.reading && whose[i].second->pending().empty()) {
      PromptDone(active);
    }
  }
  const std::lock_guard lock(turn_);
  ++counts_.steps;
  counts_.step_rows += jobs.size();
  counts_.model_ms += took;
}

// Of a prompt one job, of a request for vectors as many as fit the budget.
// Returns their tokens.
int64_t Scheduler::AddPromptJobs(
    Active& active, int64_t budget, std::vector<Job>& jobs,
    std::vector<std::pair<Active*, Session*>>& whose) {
  if (active.vectors != nullptr) {
    const int64_t tokens = active.vectors->AddJobs(budget, jobs);
    whose.resize(jobs.size(), {&active, nullptr});
    return tokens;
  }
  if (active.choices.empty()) return 0;
  Session& session = *active.choices[0].session;
  const bool scores = active.request.score_prompt;
  if (scores) budget = std::min(budget, ScoredTokens());
  jobs.push_back(session.NextJob(budget));
  if (scores) {
    jobs.back().logits = active.prompt_logits.data();
    jobs.back().all_logits = true;
  }
  whose.push_back({&active, &session});
  return static_cast<int64_t>(jobs.back().tokens.size());
}

// Tokens of a told prompt in a step.
int64_t Scheduler::ScoredTokens() const {
  return std::max<int64_t>(kScoredFloats / model_.model.n_outputs(), 1);
}

// The tokens that follow those of a job that has run.
void Scheduler::TellPrompt(Active& active, const Job& job) {
  const std::vector<int32_t>& prompt = active.request.prompt;
  const auto at =
      static_cast<size_t>(active.choices[0].session->position()) + 1;
  const auto width = static_cast<size_t>(model_.model.n_outputs());
  try {
    for (size_t i = 0; i < job.tokens.size() && at + i < prompt.size(); ++i) {
      active.request.sink->PromptToken(
          {0, prompt[at + i], {}, {job.logits + i * width, width}});
    }
  } catch (const Error& error) {
    Fail(active, error);
  }
}

// Called for each of its jobs; the first call takes them all.
void Scheduler::VectorJobsDone(Active& active) {
  if (active.done) return;
  try {
    active.vectors->JobsDone();
  } catch (const Error& error) {
    Fail(active, error);
    return;
  }
  if (!active.vectors->done()) return;
  active.usage.prompt_ms = Milliseconds(active.started, Clock::now());
  active.request.sink->Vectors(active.vectors->vectors());
  Finish(active);
}

// The prompt has been read: it is kept for others, and each further choice
// continues from a copy.
void Scheduler::PromptDone(Active& active) {
  active.reading = false;
  active.prompt_logits = {};
  active.prompt_done = Clock::now();
  active.usage.prompt_ms = Milliseconds(active.started, active.prompt_done);
  Session& session = *active.choices[0].session;
  if (active.request.cache_prompt && active.request.session == nullptr) {
    cache_.Insert(active.request.space, session);
  }
  for (int64_t i = 1; i < active.request.choices; ++i) {
    const uint64_t stream =
        active.request.options.sampler.stream + static_cast<uint64_t>(i);
    active.own.push_back(std::make_unique<Session>(session.Fork(stream)));
    active.choices.push_back({active.own.back().get()});
  }
}

void Scheduler::EndChoice(Active& active, Choice& choice, bool cancelled) {
  choice.ended = true;
  const Sequence* text = choice.session->text();
  ChoiceEnd end;
  end.choice = &choice - active.choices.data();
  end.cancelled = cancelled;
  if (text != nullptr) end.end = text->end();
  if (end.end == SequenceEnd::kStopText) end.stop_text = text->stop_text();
  if (cancelled) end.held = choice.session->TakeHeld();
  active.request.sink->End(end);
}

// A held session rests again; of a new one the text is kept for the next turn.
void Scheduler::GiveBack(Active& active, bool cancelled) {
  if (active.request.session != nullptr) {
    HeldSession& held = *active.request.session;
    held.busy = false;
    if (held.session) held.session->Settle();
    if (cancelled && active.request.roll_back_when_cancelled && held.session) {
      held.session->RollBack(
          std::min(active.began_at, held.session->position()));
    }
    return;
  }
  if (!active.request.cache_prompt || active.choices.empty()) return;
  cache_.Insert(active.request.space, *active.choices[0].session);
}

void Scheduler::Finish(Active& active) {
  active.done = true;
  TextUsage& usage = active.usage;
  if (!active.reading) {
    usage.text_ms = Milliseconds(active.prompt_done, Clock::now());
  }
  for (const Choice& choice : active.choices) {
    usage.state_bytes += choice.session->state_bytes();
  }
  SpeculationCounts drafts;
  for (const Choice& choice : active.choices) {
    const SpeculationCounts one = choice.session->speculation();
    drafts.drafted += one.drafted;
    drafts.accepted += one.accepted;
  }
  const bool cancelled = active.ticket->cancelled();
  try {
    GiveBack(active, cancelled);
  } catch (const std::exception&) {
    // Without memory for a copy the next turn reads more again.
  }
  {
    const std::lock_guard lock(turn_);
    if (cancelled) ++counts_.cancelled;
    counts_.prompt_tokens += static_cast<uint64_t>(usage.prompt_tokens);
    counts_.prompt_computed += static_cast<uint64_t>(usage.prompt_computed);
    counts_.text_tokens += static_cast<uint64_t>(usage.text_tokens);
    counts_.cache_bytes = cache_.bytes();
    counts_.drafted += static_cast<uint64_t>(drafts.drafted);
    counts_.accepted += static_cast<uint64_t>(drafts.accepted);
  }
  active.request.sink->Done(usage);
}

void Scheduler::Fail(Active& active, const Error& error) {
  active.done = true;
  if (active.request.session != nullptr && !active.choices.empty()) {
    active.request.session->busy = false;
  }
  {
    const std::lock_guard lock(turn_);
    ++counts_.failed;
  }
  active.request.sink->Failed(error);
}

void Scheduler::EraseDone() {
  std::erase_if(running_, [](const auto& active) { return active->done; });
}

}  // namespace tarn::serve
