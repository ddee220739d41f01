#include "runtime/session/session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/text.h"
#include "runtime/model/impl.h"
#include "runtime/session/speculation.h"

namespace tarn {
namespace {

// Tokens of a block between two questions to a StopCheck.
constexpr int64_t kBlockTokens = 1024;

void CheckPrompt(std::span<const int32_t> tokens, int64_t vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    throw ArgumentError(StrCat("session: tokens[", i, "]"),
                        StrCat("an id in [0, ", vocab_size, ")"),
                        StrCat(tokens[i]));
  }
}

}  // namespace

void CheckMarkName(const std::string& name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  if (!name.empty() && name.size() <= kMaxMarkName &&
      std::all_of(name.begin(), name.end(), is_letter)) {
    return;
  }
  throw ArgumentError(
      "session: mark",
      StrCat("a name of 1 to ", kMaxMarkName, " letters, digits, - and _"),
      Quoted(name.substr(0, 2 * kMaxMarkName)));
}

Session::Session(const LoadedModel& model, const SnapshotOptions& snapshots)
    : Session(model, State(model.model), snapshots) {}

Session::Session(const LoadedModel& model, State state,
                 const SnapshotOptions& snapshots)
    : model_(&model), state_(std::move(state)), snapshots_(snapshots) {
  const ModelConfig& config = model.model.config();
  if (config.task == Task::kImage || config.arch != Arch::kDecoder) {
    throw ArgumentError("session: model", "a language model", "another model");
  }
  logits_.resize(static_cast<size_t>(model.model.n_outputs()));
}

Session Session::At(const LoadedModel& model, const State& state,
                    std::vector<int32_t> tokens,
                    const SnapshotOptions& snapshots) {
  if (state.position() != std::ssize(tokens)) {
    throw ArgumentError("session: tokens",
                        StrCat(state.position(), ", as the state has read"),
                        StrCat(tokens.size()));
  }
  CheckPrompt(tokens, model.model.vocab_size());
  Session session(model, snapshots);
  session.state_.CopyFrom(state);
  session.tokens_ = std::move(tokens);
  return session;
}

Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

int64_t Session::snapshot_bytes() const {
  int64_t bytes = snapshots_.bytes();
  for (const auto& [name, mark] : marks_) {
    if (mark.state != nullptr) bytes += BytesOf(*mark.state);
  }
  return bytes;
}

std::span<const int32_t> Session::pending() const {
  return text_ ? text_->pending() : std::span<const int32_t>(pending_);
}

void Session::Append(std::span<const int32_t> tokens, const StopCheck& stop) {
  const Model& model = model_->model;
  CheckPrompt(tokens, model.vocab_size());
  GiveUpGuess();
  const std::span<const int32_t> before = pending();
  std::vector<int32_t> all(before.begin(), before.end());
  all.insert(all.end(), tokens.begin(), tokens.end());
  if (static_cast<int64_t>(all.size()) > model.max_tokens() - position()) {
    throw ArgumentError("session: tokens",
                        StrCat("at most ", model.max_tokens() - position()),
                        StrCat(all.size()));
  }
  text_.reset();
  pending_ = std::move(all);
  try {
    Consume(stop);
  } catch (...) {
    pending_.clear();
    throw;
  }
}

void Session::Begin(std::span<const int32_t> prompt,
                    const SequenceOptions& options, int64_t max_tokens) {
  const Model& model = model_->model;
  CheckPrompt(prompt, model.vocab_size());
  GiveUpGuess();
  const std::span<const int32_t> before = pending();
  std::vector<int32_t> all(before.begin(), before.end());
  all.insert(all.end(), prompt.begin(), prompt.end());
  if (all.empty() && position() == 0) {
    throw ArgumentError("session: prompt", "at least one token", "none");
  }
  const int64_t room =
      model.max_tokens() - position() - static_cast<int64_t>(all.size());
  if (max_tokens > room) {
    throw ArgumentError(
        "session: max_tokens",
        StrCat("at most ", std::max<int64_t>(room, 0), ": the model has ",
               model.max_tokens(), " learned positions (max_positions)"),
        StrCat(max_tokens));
  }
  Sequence text(model_->tokenizer, options);
  text.Begin(all, max_tokens);
  text_begin_ = position() + static_cast<int64_t>(all.size());
  pending_.clear();
  draw_states_.clear();
  text_ = std::move(text);
}

// The first position that is kept when all that is pending has been read.
int64_t Session::NextKept() const {
  const int64_t head = position() + static_cast<int64_t>(pending().size());
  int64_t next = Snapshots::NextOnGrid(position(), head);
  const int64_t every = snapshots_.options().every_token;
  if (every > 0) {
    next = std::min(next, std::max(position() + 1, head - every + 1));
  }
  const auto at =
      std::upper_bound(keep_at_.begin(), keep_at_.end(), position());
  return at == keep_at_.end() ? next : std::min(next, *at);
}

Job Session::NextJob(int64_t most) {
  Job job = NextPending(most);
  if (job.tokens.size() < pending().size()) return job;
  const std::optional<Job> guess = GuessJob(most);
  return guess ? *guess : job;
}

// The same without a guess.
Job Session::NextPending(int64_t most) {
  const std::span<const int32_t> all = pending();
  if (all.empty() || most < 1) {
    throw ArgumentError("session: job", "a token to consume", "none");
  }
  if (speculation_) speculation_->handed_out = false;
  CopyMarkedHere();
  Insides::Of(state_).GiveSpare(snapshots_.TakeFreed());
  const int64_t count = std::min(most, NextKept() - position());
  const auto tokens = all.first(static_cast<size_t>(count));
  const int64_t left = static_cast<int64_t>(all.size()) - count;
  // A state that is kept to be gone back to needs its logits.
  const bool logits = left == 0 || left < snapshots_.options().every_token;
  return {.state = &state_,
          .tokens = tokens,
          .logits = logits ? logits_.data() : nullptr,
          .hidden = HiddenOf(tokens.size())};
}

void Session::JobDone(const Job& job, double ms) {
  const size_t count = GuessDone(job, ms);
  const auto consumed = job.tokens.first(count);
  tokens_.insert(tokens_.end(), consumed.begin(), consumed.end());
  if (text_) {
    text_->Consumed(count);
  } else {
    pending_.erase(pending_.begin(),
                   pending_.begin() + static_cast<ptrdiff_t>(count));
  }
  if (!reads_ahead()) Reached();
}

// Keeps the state here if a rule wants it.
void Session::Reached() {
  const int64_t here = position();
  const int64_t left = static_cast<int64_t>(pending().size());
  const bool asked = !keep_at_.empty() && keep_at_.front() <= here;
  const bool wanted =
      asked && std::binary_search(keep_at_.begin(), keep_at_.end(), here);
  if (asked) std::erase_if(keep_at_, [&](int64_t at) { return at <= here; });
  if (!wanted && snapshots_.options().every_token <= left &&
      !Snapshots::OnGrid(here, here + left)) {
    return;
  }
  snapshots_.Keep(Insides::Of(state_), wanted);
  snapshots_.Thin(here);
}

void Session::Consume(const StopCheck& stop) {
  using Clock = std::chrono::steady_clock;
  while (!pending().empty()) {
    Job job = NextJob(kBlockTokens);
    const Clock::time_point begin = Clock::now();
    model_->model.StepBatch({&job, 1}, stop);
    const std::chrono::duration<double, std::milli> ms = Clock::now() - begin;
    JobDone(job, ms.count());
  }
}

int32_t Session::Draw() {
  if (!text_) {
    throw ArgumentError("session: Draw", "a text that has begun", "none");
  }
  if (!pending().empty() || logits().empty()) {
    throw ArgumentError("session: Draw", "all tokens consumed, with logits",
                        "tokens to consume");
  }
  const bool remembers = text_->options().sampler.mirostat != 0;
  if (remembers) {
    draw_states_.resize(static_cast<size_t>(position() - text_begin_));
    draw_states_.reserve(draw_states_.size() + 1);
  }
  drawn_from_ = logits();
  const int32_t token =
      text_->Draw(drawn_from_, static_cast<uint64_t>(position()), tokens_);
  if (remembers) draw_states_.push_back(text_->sampler_state());
  if (reads_ahead()) CompareGuess(token);
  return token;
}

Session Session::Fork(std::optional<uint64_t> stream) const {
  Session copy(*model_, state_.Clone(), snapshots_.options());
  copy.tokens_ = tokens_;
  copy.pending_ = pending_;
  copy.text_ = text_;
  copy.text_begin_ = text_begin_;
  copy.draw_states_ = draw_states_;
  copy.snapshots_ = snapshots_;
  copy.snapshots_.ForgetFreed();
  copy.keep_at_ = keep_at_;
  copy.marks_ = marks_;
  CopyWithoutGuess(copy);
  if (stream && copy.text_) copy.text_->SetStream(*stream);
  return copy;
}

void Session::Mark(const std::string& name) {
  CheckMarkName(name);
  if (marks_.size() >= kMaxMarks && marks_.count(name) == 0) {
    throw ArgumentError("session: mark",
                        StrCat("at most ", kMaxMarks, " marks"), "one more");
  }
  Settle();
  marks_[name] = {position(), nullptr};
}

bool Session::Unmark(const std::string& name) { return marks_.erase(name) > 0; }

// The state is about to change: marks that stand here get a copy, one for all.
void Session::CopyMarkedHere() {
  if (position() == 0) return;  // the initial state is not kept
  std::shared_ptr<const StateMark> copy;
  for (auto& [name, mark] : marks_) {
    if (mark.state != nullptr || mark.position != position()) continue;
    if (copy == nullptr) {
      copy = std::make_shared<StateMark>(Insides::Of(state_).Mark());
    }
    mark.state = copy;
  }
}

// The kept state from which to go back to a position; null for the initial one.
// It has logits if it stands at the position itself. `marked`: memory for one.
const Snapshot* Session::NearestState(int64_t position,
                                      Snapshot& marked) const {
  const auto serves = [&](const Snapshot& s) {
    return s.position < position || (s.position == position && s.has_logits());
  };
  const Snapshot* best = snapshots_.Nearest(position);
  if (best != nullptr && !serves(*best)) {
    best = snapshots_.Nearest(position - 1);
  }
  for (const auto& [name, mark] : marks_) {
    if (mark.state == nullptr) continue;
    const Snapshot snapshot{mark.position, mark.state};
    if (!serves(snapshot)) continue;
    if (best != nullptr && best->position >= snapshot.position) continue;
    marked = snapshot;
    best = &marked;
  }
  return best;
}

void Session::Restore(const Snapshot* from) {
  SequenceState& state = Insides::Of(state_);
  if (from == nullptr) {
    state.Reset();
  } else {
    state.Rollback(*from->mark);
  }
}

void Session::DropAfter(int64_t position) {
  snapshots_.DropAfter(position);
  std::erase_if(marks_,
                [&](const auto& m) { return m.second.position > position; });
  std::erase_if(keep_at_, [&](int64_t at) { return at > position; });
  tokens_.resize(static_cast<size_t>(position));
}

// The text as it was at the present position.
void Session::RewindText() {
  if (speculation_) speculation_->source->Forget(position());
  pending_.clear();
  if (!text_) return;
  if (position() < text_begin_) {
    text_.reset();
    return;
  }
  const std::vector<int32_t> none;
  ReplayText(none);
}

// Takes the tokens from the text's beginning to the present position again,
// and then those pending.
void Session::ReplayText(std::span<const int32_t> pending) {
  text_->Restart();
  for (int64_t i = text_begin_; i < position(); ++i) {
    text_->Accept(tokens_[static_cast<size_t>(i)]);
    text_->Consumed(1);
  }
  for (const int32_t token : pending) text_->Accept(token);
  const auto drawn = static_cast<size_t>(text_->tokens());
  draw_states_.resize(std::min(drawn, draw_states_.size()));
  if (!draw_states_.empty()) text_->SetSamplerState(draw_states_.back());
}

int64_t Session::RollBack(int64_t position, const StopCheck& stop) {
  Settle(stop);
  if (position < 0 || position > this->position()) {
    throw ArgumentError("session: position", StrCat("0 to ", this->position()),
                        StrCat(position));
  }
  if (position == this->position()) {
    RewindText();
    return 0;
  }
  CopyMarkedHere();
  Snapshot marked;
  const Snapshot* from = NearestState(position, marked);
  const int64_t replayed = position - (from == nullptr ? 0 : from->position);
  if (replayed == 0) {
    Restore(from);
  } else {
    Replay(from, position, stop);
  }
  DropAfter(position);
  RewindText();
  return replayed;
}

int64_t Session::RollBackTo(const std::string& mark, const StopCheck& stop) {
  const auto found = marks_.find(mark);
  if (found == marks_.end()) {
    throw ArgumentError("session: mark", "the name of a mark", Quoted(mark));
  }
  return RollBack(found->second.position, stop);
}

// Reads the tokens from a kept state up to a position again. Rows of growing
// tensors get the bits that they have, so the head can be restored where this
// fails.
void Session::Replay(const Snapshot* from, int64_t position,
                     const StopCheck& stop) {
  SequenceState& state = Insides::Of(state_);
  const StateMark head = state.Mark();
  try {
    int64_t at = from == nullptr ? 0 : from->position;
    Restore(from);
    while (at < position) {
      const int64_t next =
          std::min(Snapshots::NextOnGrid(at, position), at + kBlockTokens);
      const auto tokens = std::span<const int32_t>(tokens_).subspan(
          static_cast<size_t>(at), static_cast<size_t>(next - at));
      float* logits = next == position ? logits_.data() : nullptr;
      model_->model.Prefill(state_, tokens, logits, stop);
      at = next;
      if (Snapshots::OnGrid(at, position)) snapshots_.Keep(state);
    }
  } catch (...) {
    state.Rollback(head);
    throw;
  }
}

void Session::KeepAt(int64_t position) {
  if (position <= this->position()) return;
  const auto at = std::lower_bound(keep_at_.begin(), keep_at_.end(), position);
  if (at == keep_at_.end() || *at != position) keep_at_.insert(at, position);
}

void Session::KeepHere() {
  Settle();
  if (position() > 0) snapshots_.Keep(Insides::Of(state_), /*asked_for=*/true);
}

bool Session::operator==(const Session& other) const {
  return tokens_ == other.tokens_ && state_ == other.state_ &&
         std::equal(pending().begin(), pending().end(), other.pending().begin(),
                    other.pending().end());
}

}  // namespace tarn
