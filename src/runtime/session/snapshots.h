// The values that a session's state had at earlier positions, few enough to
// keep and close enough to go back to any position quickly.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/state/sequence_state.h"

namespace tarn {

/// A state's fixed part after `position` tokens. What grows with the tokens is
/// only ever appended to, so the rows of a later state serve this one too.
struct Snapshot {
  int64_t position = 0;
  std::shared_ptr<const StateMark> mark;
  bool asked_for = false;  // by an owner: it is not thinned out
  bool has_logits() const { return mark->logits.size() > 0; }
};

/// Bytes that a snapshot holds.
int64_t BytesOf(const StateMark& mark);

struct SnapshotOptions {
  /// Of all snapshots of a session; the earliest is dropped first. >= 0.
  int64_t max_bytes = int64_t{256} << 20;
  /// States kept after each of the last tokens. Each costs a copy of the
  /// state's fixed part for every token that is consumed. 0 to 1,024.
  int64_t every_token = 0;
};

/// Multiples of 64 tokens, thinned: at a distance d from the head the gap
/// between neighbours is at most max(64, d / 4), so 1,000,000 tokens have some
/// 40 snapshots, and going back by d tokens replays at most that many. Besides
/// them the positions that an owner asks for. A value: copies share the states.
/// One thread at a time.
class Snapshots {
 public:
  static constexpr int64_t kGrid = 64;

  /// Throws ArgumentError for options out of range.
  explicit Snapshots(const SnapshotOptions& options);

  /// Whether the grid has a snapshot at this position once `head` tokens are
  /// consumed. True for fewer and fewer positions as the head moves on.
  static bool OnGrid(int64_t position, int64_t head);
  /// The first position after `position`, up to `head`, that is on the grid of
  /// `head`; `head` where there is none. O(log).
  static int64_t NextOnGrid(int64_t position, int64_t head);

  /// Keeps a state, unless one of this position with logits where the state has
  /// them is there. O(1): it is copied when it next changes. Throws
  /// std::bad_alloc.
  void Keep(const SequenceState& state, bool asked_for = false);
  /// Adds what another owner keeps of this sequence.
  void Share(const Snapshot& snapshot);
  /// Drops what the grid of a head and the last tokens do not need, then the
  /// earliest until the rest fits.
  void Thin(int64_t head);
  /// The last one at or before a position; null where there is none.
  const Snapshot* Nearest(int64_t position) const;
  /// Drops those after a position.
  void DropAfter(int64_t position);
  void Clear();

  /// With `every_token`: memory of a dropped state, for the next copy; empty
  /// where there is none.
  SharedFloats TakeFreed();
  void ForgetFreed() { freed_.clear(); }

  /// By position.
  const std::vector<Snapshot>& all() const { return all_; }
  int64_t bytes() const { return bytes_; }
  const SnapshotOptions& options() const { return options_; }

 private:
  void Insert(Snapshot snapshot);
  void Erase(size_t first, size_t last);
  void Drop(Snapshot& snapshot);

  SnapshotOptions options_;
  std::vector<Snapshot> all_;
  std::vector<SharedFloats> freed_;
  int64_t bytes_ = 0;
};

}  // namespace tarn
