#include "runtime/session/snapshots.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/error.h"

namespace tarn {
namespace {

// The distance between neighbours at a distance from the head: 64 * 2^k with
// 2^k <= distance / 256, so that it is at most distance / 4 from 256 on.
int64_t GapAt(int64_t distance) {
  const auto quarters = static_cast<uint64_t>(
      std::max<int64_t>(distance / (4 * Snapshots::kGrid), 1));
  return Snapshots::kGrid * static_cast<int64_t>(std::bit_floor(quarters));
}

bool Before(int64_t position, const Snapshot& snapshot) {
  return position < snapshot.position;
}

}  // namespace

int64_t BytesOf(const StateMark& mark) {
  return mark.block.bytes() + mark.logits.bytes();
}

Snapshots::Snapshots(const SnapshotOptions& options) : options_(options) {
  if (options.max_bytes < 0) {
    throw ArgumentError("snapshots: max_bytes", "0 or more",
                        StrCat(options.max_bytes));
  }
  if (options.every_token < 0 || options.every_token > 1024) {
    throw ArgumentError("snapshots: every_token", "0 to 1024",
                        StrCat(options.every_token));
  }
}

bool Snapshots::OnGrid(int64_t position, int64_t head) {
  return position > 0 && position <= head &&
         position % GapAt(head - position) == 0;
}

int64_t Snapshots::NextOnGrid(int64_t position, int64_t head) {
  int64_t next = head;
  // The gap is at most `gap` where the head is less than 8 gaps away; there
  // every multiple of it is on the grid.
  for (int64_t gap = GapAt(head - position); gap >= kGrid; gap /= 2) {
    const int64_t from = std::max(position, head - 8 * gap);
    next = std::min(next, (from / gap + 1) * gap);
  }
  return next;
}

void Snapshots::Keep(const SequenceState& state, bool asked_for) {
  const Snapshot* there = Nearest(state.position);
  if (there != nullptr && there->position == state.position &&
      (there->has_logits() || !state.has_logits)) {
    if (asked_for)
      all_[static_cast<size_t>(there - all_.data())].asked_for = true;
    return;
  }
  Insert(
      {state.position, std::make_shared<StateMark>(state.Mark()), asked_for});
}

void Snapshots::Share(const Snapshot& snapshot) { Insert(snapshot); }

void Snapshots::Insert(Snapshot snapshot) {
  auto after =
      std::upper_bound(all_.begin(), all_.end(), snapshot.position, Before);
  if (after != all_.begin() &&
      std::prev(after)->position == snapshot.position) {
    Snapshot& there = *std::prev(after);
    bytes_ += BytesOf(*snapshot.mark) - BytesOf(*there.mark);
    snapshot.asked_for |= there.asked_for;
    there = std::move(snapshot);
    return;
  }
  bytes_ += BytesOf(*snapshot.mark);
  all_.insert(after, std::move(snapshot));
}

void Snapshots::Erase(size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) Drop(all_[i]);
  all_.erase(all_.begin() + static_cast<ptrdiff_t>(first),
             all_.begin() + static_cast<ptrdiff_t>(last));
}

// Counts a snapshot out; its memory may serve the next one.
void Snapshots::Drop(Snapshot& snapshot) {
  bytes_ -= BytesOf(*snapshot.mark);
  SharedFloats block = snapshot.mark->block;
  snapshot.mark = nullptr;
  if (static_cast<int64_t>(freed_.size()) < options_.every_token &&
      block.size() > 0 && block.own()) {
    freed_.push_back(std::move(block));
  }
}

SharedFloats Snapshots::TakeFreed() {
  if (freed_.empty()) return {};
  SharedFloats block = std::move(freed_.back());
  freed_.pop_back();
  return block;
}

void Snapshots::Thin(int64_t head) {
  std::erase_if(all_, [&](Snapshot& s) {
    const bool near = head - s.position <= options_.every_token;
    const bool gone = !near && !s.asked_for && !OnGrid(s.position, head);
    if (gone) Drop(s);
    return gone;
  });
  size_t first = 0;
  int64_t left = bytes_;
  while (first < all_.size() && left > options_.max_bytes) {
    left -= BytesOf(*all_[first++].mark);
  }
  Erase(0, first);
}

const Snapshot* Snapshots::Nearest(int64_t position) const {
  const auto after =
      std::upper_bound(all_.begin(), all_.end(), position, Before);
  return after == all_.begin() ? nullptr : &*std::prev(after);
}

void Snapshots::DropAfter(int64_t position) {
  const auto after =
      std::upper_bound(all_.begin(), all_.end(), position, Before);
  Erase(static_cast<size_t>(after - all_.begin()), all_.size());
}

void Snapshots::Clear() { Erase(0, all_.size()); }

}  // namespace tarn
