// A session that reads guesses ahead of its draws. The state runs ahead of
// position() only between such a read and the draw that does not confirm it;
// then it goes back, and what the text has kept since is pending again: it is
// read a second time together with the next guess, which costs less than a pass
// of its own.
#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/model/elapsed.h"
#include "runtime/model/impl.h"
#include "runtime/session/session.h"
#include "runtime/session/speculation.h"

namespace tarn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostGuess = 64;

}  // namespace

void Session::Speculate(std::unique_ptr<DraftSource> source,
                        const SpeculationOptions& options) {
  if (options.most < 1 || options.most > kMostGuess) {
    throw ArgumentError("session: speculation.most",
                        StrCat("1 to ", kMostGuess), StrCat(options.most));
  }
  GiveUpGuess();
  speculation_.reset();
  if (source == nullptr) return;
  speculation_ = std::make_unique<Speculation>(std::move(source), options);
}

SpeculationCounts Session::speculation() const {
  return speculation_ ? speculation_->counts : SpeculationCounts{};
}

std::span<const float> Session::draft_logits() const {
  if (!speculation_) return {};
  return speculation_->source->logits();
}

bool Session::reads_ahead() const {
  return speculation_ && speculation_->ahead;
}

std::span<const float> Session::logits() const {
  if (!reads_ahead()) return state_.last_logits();
  const Speculation& s = *speculation_;
  return std::span<const float>(s.rows).subspan(
      (s.pending - 1 + s.confirmed) * logits_.size(), logits_.size());
}

// The most tokens that a guess may have after what is pending: the text needs
// the logits of no more, and a state that is to be kept is not jumped over.
int64_t Session::RoomToGuess() const {
  const int64_t head = position() + static_cast<int64_t>(pending().size());
  int64_t room = text_->max_tokens() - text_->tokens() - 1;
  room = std::min(
      room, (position() / Snapshots::kGrid + 1) * Snapshots::kGrid - head);
  const auto at =
      std::upper_bound(keep_at_.begin(), keep_at_.end(), position());
  return at == keep_at_.end() ? room : std::min(room, *at - head);
}

// A job that reads all that is pending and a guess after it; nothing where none
// pays. `most`: tokens of the job.
std::optional<Job> Session::GuessJob(int64_t most) {
  if (!speculation_ || !text_ || text_->ended() || position() < text_begin_ ||
      snapshots_.options().every_token > 0) {
    return std::nullopt;
  }
  Speculation& s = *speculation_;
  const std::span<const int32_t> waiting = pending();
  const auto count = static_cast<int64_t>(waiting.size());
  const int64_t room = std::min(most - count, RoomToGuess());
  if (room < 1 || count > s.options.most) return std::nullopt;
  const bool adapts = s.options.adapts;
  const int64_t longest =
      std::min(room, adapts ? s.length.Longest(count) : s.options.most);
  if (longest < 1) return std::nullopt;
  Clock::time_point begin = Clock::now();
  s.tokens.assign(waiting.begin(), waiting.end());
  s.tokens.resize(static_cast<size_t>(count + longest));
  const Draft draft =
      s.source->Guess({tokens_, waiting, *text_},
                      std::span<int32_t>(s.tokens).subspan(waiting.size()));
  const auto drafted = static_cast<int64_t>(draft.tokens);
  // The first time a model reads the whole text.
  if (std::exchange(s.has_guessed, true)) {
    s.length.Guessed(drafted, MillisecondsSince(begin));
  }
  if (drafted == 0) return std::nullopt;
  const int64_t guessed =
      adapts ? std::min(drafted, s.length.Choose(draft.kind, count)) : drafted;
  if (guessed < 1) return std::nullopt;
  begin = Clock::now();
  s.pending = waiting.size();
  s.guessed = static_cast<size_t>(guessed);
  s.confirmed = 0;
  s.kind = draft.kind;
  s.from = position();
  s.tokens.resize(s.pending + s.guessed);
  s.rows.resize(s.tokens.size() * logits_.size());
  // Nothing allocates once tokens are drawn.
  text_->Reserve(s.tokens.size() + 1);
  const size_t needed = tokens_.size() + s.tokens.size();
  if (tokens_.capacity() < needed) tokens_.reserve(2 * needed);
  Insides::Of(state_).MarkCopy(s.before);
  s.ms = MillisecondsSince(begin);
  s.handed_out = true;
  return Job{.state = &state_,
             .tokens = s.tokens,
             .logits = s.rows.data(),
             .all_logits = true,
             .hidden = HiddenOf(s.tokens.size())};
}

// Room for the rows of a job that the source of drafts reads; null: it reads
// none.
float* Session::HiddenOf(size_t tokens) {
  if (!speculation_ || !speculation_->source->reads_hidden()) return nullptr;
  const auto width = static_cast<size_t>(model_->model.config().d_model);
  speculation_->hidden.resize(tokens * width);
  return speculation_->hidden.data();
}

// Of a job that has run: how many of its tokens were pending.
size_t Session::GuessDone(const Job& job, double ms) {
  if (!speculation_) return job.tokens.size();
  Speculation& s = *speculation_;
  const bool guessed = std::exchange(s.handed_out, false);
  if (text_ && position() >= text_begin_ && ms > 0) {
    s.length.Read(static_cast<int64_t>(job.tokens.size()),
                  guessed ? ms + s.ms : ms);
  }
  if (!guessed) {
    if (job.hidden != nullptr) {
      s.source->Read(position(), job.tokens, job.hidden);
    }
    return job.tokens.size();
  }
  s.ahead = true;
  ++s.counts.drafts;
  s.counts.drafted += static_cast<int64_t>(s.guessed);
  return s.pending;
}

// The text has drawn a token where the guess had one.
void Session::CompareGuess(int32_t token) {
  Speculation& s = *speculation_;
  const bool right =
      !text_->ended() && token == s.tokens[s.pending + s.confirmed];
  if (right) {
    tokens_.push_back(token);
    text_->Consumed(1);
    ++s.confirmed;
    ++s.counts.accepted;
    if (s.confirmed < s.guessed) return;
  }
  // A text that ends says nothing of what would have followed.
  const size_t judged = text_->ended() ? s.confirmed : s.guessed;
  s.length.Confirmed(s.kind, static_cast<int64_t>(judged),
                     static_cast<int64_t>(s.confirmed));
  if (right) {
    ReadGuess();
    s.ahead = false;
    Reached();
  } else {
    GiveUpGuess();
  }
}

// The source reads what the model made of a guess, as far as it is confirmed.
void Session::ReadGuess() {
  const Speculation& s = *speculation_;
  if (!s.source->reads_hidden()) return;
  s.source->Read(
      s.from, std::span<const int32_t>(s.tokens).first(s.pending + s.confirmed),
      s.hidden.data());
}

// The state goes back to where the guess began; what is confirmed of it is
// pending again.
void Session::GiveUpGuess() {
  if (!reads_ahead()) return;
  ReadGuess();
  Speculation& s = *speculation_;
  text_->Unconsumed(
      std::span<const int32_t>(tokens_).subspan(static_cast<size_t>(s.from)));
  s.ahead = false;
  Insides::Of(state_).Exchange(s.before);
  tokens_.resize(static_cast<size_t>(s.from));
}

// The same for a copy that was made of the state and the text.
void Session::CopyWithoutGuess(Session& copy) const {
  if (!speculation_) return;
  const Speculation& s = *speculation_;
  if (s.ahead) {
    copy.text_->Unconsumed(
        std::span<const int32_t>(tokens_).subspan(static_cast<size_t>(s.from)));
    Insides::Of(copy.state_).Rollback(s.before);
    copy.tokens_.resize(static_cast<size_t>(s.from));
  }
  copy.speculation_ = std::make_unique<Speculation>(s.source->New(), s.options);
}

void Session::Settle(const StopCheck& stop) {
  GiveUpGuess();
  if (!text_ || position() < text_begin_) return;
  // Without guesses the token drawn last waits, and nothing else.
  const bool none = text_->end() == SequenceEnd::kStopToken ||
                    text_->end() == SequenceEnd::kGrammar;
  const size_t waits = none ? 0 : 1;
  while (pending().size() > waits) {
    Job job = NextPending(static_cast<int64_t>(pending().size() - waits));
    job.logits = logits_.data();
    model_->model.StepBatch({&job, 1}, stop);
    JobDone(job);
  }
}

}  // namespace tarn
