// A sequence with its whole past as one value: the state, the tokens that it
// has read, the text being drawn, earlier states and named marks. It is what is
// forked, rolled back, parked and served.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/threads/stoppable.h"
#include "runtime/session/loaded_model.h"
#include "runtime/session/sequence.h"
#include "runtime/session/snapshots.h"

namespace tarn {

inline constexpr size_t kMaxMarks = 64;
inline constexpr size_t kMaxMarkName = 64;  // bytes

/// Throws ArgumentError for what Session::Mark does not take.
void CheckMarkName(const std::string& name);

class DraftSource;
struct Speculation;

struct SpeculationOptions {
  int64_t most = 12;  // tokens of a guess, 1 to 64
  /// Guesses only as far as reads were measured to make up for it; else always
  /// as far as it can.
  bool adapts = true;
};

/// What the drafts of a session came to: tokens that the model read ahead, and
/// how many of them the text then drew.
struct SpeculationCounts {
  int64_t drafts = 0, drafted = 0, accepted = 0;
};

/// Where a session stood when it was marked.
struct SessionMark {
  int64_t position = 0;
  /// Null: the session still stands there, and the state is not copied yet; or
  /// it is the initial one.
  std::shared_ptr<const StateMark> state;
};

/// Refers to the model, which must outlive it. Move-only; one thread at a time.
/// Everything is exact: after any of the calls below state and logits have the
/// bits of a session that has read the same tokens and nothing else.
class Session {
 public:
  /// An empty session. Throws ArgumentError for options out of range and for
  /// models that do not generate token by token from tokens alone.
  explicit Session(const LoadedModel& model,
                   const SnapshotOptions& snapshots = {});
  /// A session that has read `tokens` and stands at the state after them. The
  /// memory of the state is shared. Throws as the constructor does, and
  /// ArgumentError where the state has read another number of tokens or one of
  /// them is outside the vocabulary.
  static Session At(const LoadedModel& model, const State& state,
                    std::vector<int32_t> tokens,
                    const SnapshotOptions& snapshots = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  const LoadedModel& model() const { return *model_; }
  /// Tokens consumed, in order: the last drawn one may still be pending().
  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t position() const { return static_cast<int64_t>(tokens_.size()); }
  const State& state() const { return state_; }
  /// Of the last token consumed; empty before the first, and where the caller
  /// has not asked for them.
  std::span<const float> logits() const;
  /// Those that the last Draw drew from, valid until the next other call.
  std::span<const float> drawn_from() const { return drawn_from_; }
  /// Bytes of the state; of snapshots and marks.
  int64_t state_bytes() const { return state_.bytes(); }
  int64_t snapshot_bytes() const;
  const std::vector<Snapshot>& snapshots() const { return snapshots_.all(); }

  /// Consumes tokens, after those that are pending. Logits of the last one are
  /// kept. Ends the text being drawn. Throws as Model::Prefill, and Error of
  /// kInterrupted once `stop` says so; then a beginning of the tokens is
  /// consumed and none is pending.
  void Append(std::span<const int32_t> tokens, const StopCheck& stop = {});

  /// Begins a text: the model reads `prompt` after what is pending, then at
  /// most `max_tokens` tokens are drawn. With an empty prompt it continues
  /// where the session stands, which needs a token consumed or pending. A text
  /// that has begun is dropped. Throws ArgumentError with nothing changed: for
  /// options or tokens out of range, and where prompt and text need more
  /// positions than the model has.
  void Begin(std::span<const int32_t> prompt, const SequenceOptions& options,
             int64_t max_tokens);
  /// The text: empty before Begin, and after Append or a rollback before its
  /// first token.
  const Sequence* text() const { return text_ ? &*text_ : nullptr; }
  /// Tokens to consume next: a prompt, or the token drawn last.
  std::span<const int32_t> pending() const;
  /// Bytes that the text holds back (Sequence::TakeHeld), once its caller ends
  /// it.
  std::string TakeHeld() { return text_ ? text_->TakeHeld() : ""; }

  /// The next tokens as a job for Model::StepBatch: at most `most` (1 or more)
  /// of those pending, and no more than to the next position where a state is
  /// kept. Valid until JobDone or any other call. Throws ArgumentError with
  /// nothing pending.
  Job NextJob(int64_t most);
  /// The job has run. `ms`: how long, if the caller knows; lengths of guesses
  /// are chosen by it.
  void JobDone(const Job& job, double ms = 0);
  /// Consumes everything pending. `stop` as for Append, but what is left stays
  /// pending.
  void Consume(const StopCheck& stop = {});
  /// Draws a token of the text, which is pending then (Sequence::Draw).
  int32_t Draw();

  /// Guesses of `source` are read along with the token that the text has drawn;
  /// null: none. Every token, state and logit keeps its bits: draws that
  /// confirm guesses need no pass of their own. Not with
  /// SnapshotOptions::every_token. Meanwhile several drawn tokens may be
  /// pending() where otherwise one is. Throws ArgumentError for options out of
  /// range.
  void Speculate(std::unique_ptr<DraftSource> source,
                 const SpeculationOptions& options = {});
  SpeculationCounts speculation() const;
  /// DraftSource::logits.
  std::span<const float> draft_logits() const;
  /// Whether state() holds a guess besides what the session has consumed.
  bool reads_ahead() const;
  /// Consumes all that is pending of a text but the token drawn last: where the
  /// session stands without guesses. Fork, Append and Begin need no Settle;
  /// Mark, KeepHere and RollBack do it. Errors as Append.
  void Settle(const StopCheck& stop = {});

  /// A session that continues by itself from the same value: state, tokens,
  /// text, marks; snapshots are shared. `stream`: of its draws; without one the
  /// text draws as this one does. O(tokens): the state is copied when one of
  /// the two next moves. Throws std::bad_alloc.
  Session Fork(std::optional<uint64_t> stream = {}) const;

  /// Gives the present position a name, or moves a name here. The state is
  /// copied when the session next moves. Throws ArgumentError for a name that
  /// is not 1 to 64 letters, digits, - and _, and beyond 64 marks.
  void Mark(const std::string& name);
  /// False where there is no such mark.
  bool Unmark(const std::string& name);
  const std::map<std::string, SessionMark>& marks() const { return marks_; }

  /// Goes back to a position, 0 to position(), from the nearest state kept at
  /// or before it; returns how many tokens were read again. What is pending is
  /// dropped, later marks and snapshots too. A text continues from there if it
  /// had begun by then. Throws ArgumentError for other positions, and as Append
  /// does, with the session unchanged.
  int64_t RollBack(int64_t position, const StopCheck& stop = {});
  /// To a mark, which stays; ArgumentError for an unknown name.
  int64_t RollBackTo(const std::string& mark, const StopCheck& stop = {});

  /// Keeps the state at this position once it is reached, such as where the
  /// prompts of two conversations part.
  void KeepAt(int64_t position);
  /// Keeps the present state among the snapshots. O(fixed part).
  void KeepHere();

  /// State, tokens and what is pending, bit for bit.
  bool operator==(const Session& other) const;

 private:
  friend class PrefixCache;
  friend struct SessionParts;  // of its file

  Session(const LoadedModel& model, State state,
          const SnapshotOptions& snapshots);

  const Snapshot* NearestState(int64_t position, Snapshot& marked) const;
  void Restore(const Snapshot* from);
  void Replay(const Snapshot* from, int64_t position, const StopCheck& stop);
  void CopyMarkedHere();
  Job NextPending(int64_t most);
  int64_t RoomToGuess() const;
  std::optional<Job> GuessJob(int64_t most);
  float* HiddenOf(size_t tokens);
  size_t GuessDone(const Job& job, double ms);
  void ReadGuess();
  void CompareGuess(int32_t token);
  void GiveUpGuess();
  void CopyWithoutGuess(Session& copy) const;
  void DropAfter(int64_t position);
  void RewindText();
  void ReplayText(std::span<const int32_t> pending);
  int64_t NextKept() const;
  void Reached();

  const LoadedModel* model_;
  State state_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> pending_;  // where there is no text
  std::optional<Sequence> text_;
  int64_t text_begin_ = 0;  // position after the text's prompt
  // After each of the text's tokens, where they are more than the tokens tell.
  std::vector<SamplerState> draw_states_;
  Snapshots snapshots_;
  std::vector<int64_t> keep_at_;  // ascending
  std::map<std::string, SessionMark> marks_;
  std::vector<float> logits_;  // [n_outputs], of a job
  std::span<const float> drawn_from_;
  std::unique_ptr<Speculation> speculation_;
};

}  // namespace tarn
