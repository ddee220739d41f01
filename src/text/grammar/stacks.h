// Where a text has come in a grammar: a set of positions, each with the calls
// that are still open below it. Stacks share what they have in common, so that
// ambiguity costs no more than the nodes of the automaton.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/grammar/automaton.h"

namespace tarn::grammar {

/// A set of stacks as a value, in one form only: equal sets that were reached
/// in different ways are equal.
struct StackSet {
  struct Top {
    int32_t node;
    int32_t frame;  // the calls below; 0: none, the root's own nodes
    auto operator<=>(const Top&) const = default;
  };
  /// Frame i: the node where a caller resumes, and one or more frames below it,
  /// all with smaller numbers. Frame 0 is the bottom. Sorted by depth, node and
  /// frames below; none twice.
  std::vector<int32_t> nodes;               // [frames]; nodes[0] = -1
  std::vector<std::vector<int32_t>> below;  // [frames]; sorted
  std::vector<Top> tops;                    // sorted
  bool operator==(const StackSet&) const = default;

  static StackSet Start(const Automaton& automaton) {
    return {{-1}, {{}}, {{automaton.entry(), 0}}};
  }
};

/// Follows texts through an automaton, with room that is used again. One thread
/// at a time. A position is closed (all calls and returns followed), then
/// matched with a byte, which gives the next. Positions form a stack: `Mark`
/// and `Rewind` go back to an earlier one.
class Stepper {
 public:
  using Top = StackSet::Top;
  struct Range {
    size_t begin = 0, end = 0;
    bool empty() const { return begin == end; }
  };
  struct Mark {
    size_t frames, links, tops, items;
  };

  explicit Stepper(const Automaton& automaton) : automaton_(automaton) {
    Clear();
  }
  /// Forgets all but the bottom.
  void Clear();
  /// Forgets all and takes a set's frames, under their numbers.
  void Load(const StackSet& stacks);
  /// Adds these as a new position.
  Range Add(const std::vector<Top>& tops);

  /// The tops and all positions that calls and returns reach from them. Empty
  /// where those are more than kMaxItems, and then `limited` is true.
  Range Close(Range tops);
  /// Where a byte leads from a closed position. Drops stacks deeper than
  /// kMaxDepth; empty where all the stacks have more than kMaxFrames frames.
  Range Match(Range items, uint8_t byte);
  /// Close and Match.
  Range Step(Range tops, uint8_t byte) { return Match(Close(tops), byte); }

  /// Whether one of the tops may end the text. O(frames and their links).
  bool Complete(Range tops) const;
  /// In the form described above. O(frames log frames).
  StackSet Store(Range tops);

  Mark Save() const {
    return {frames_.size(), links_.size(), tops_.size(), items_.size()};
  }
  void Rewind(const Mark& mark);

  const Top& top(size_t i) const { return tops_[i]; }
  /// Frames below frame f: link = FirstLink(f); link >= 0; link = next.
  int32_t FirstLink(int32_t frame) const { return frames_[frame].links; }
  int32_t frame_node(int32_t frame) const { return frames_[frame].node; }
  int32_t LinkedFrame(int32_t link) const { return links_[link].frame; }
  int32_t NextLink(int32_t link) const { return links_[link].next; }

  /// Whether the last Close reached the bottom's end.
  bool reached_bottom() const { return reached_bottom_; }
  /// Whether any Close or Match since the last Clear or Load met a limit.
  bool limited() const { return limited_; }
  /// The most items, frames and depth since then.
  size_t peak_items() const { return peak_items_; }
  size_t peak_frames() const { return peak_frames_; }
  int32_t peak_depth() const { return peak_depth_; }
  /// Calls of Match in all; what the work is proportional to.
  uint64_t steps() const { return steps_; }

 private:
  struct Frame {
    int32_t node;   // where the caller resumes
    int32_t entry;  // of the rule called, while its position is being closed
    int32_t links;  // to the frames below, -1: none
    int32_t depth;
  };
  struct Link {
    int32_t frame, next;
  };

  void AddItem(size_t first, Top item);
  int32_t FrameFor(size_t first_frame, const Automaton::Call& call,
                   int32_t below);
  void SetDepths(size_t first_frame);
  size_t LiveFrames(Range tops, std::vector<bool>& live) const;

  const Automaton& automaton_;
  std::vector<Frame> frames_;
  std::vector<Link> links_;
  std::vector<Top> tops_, items_;
  bool reached_bottom_ = false, limited_ = false;
  size_t peak_items_ = 0, peak_frames_ = 0;
  int32_t peak_depth_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace tarn::grammar
