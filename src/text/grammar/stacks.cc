#include "text/grammar/stacks.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "text/grammar/limits.h"

namespace tarn::grammar {

void Stepper::Clear() {
  frames_.assign(1, {-1, -1, -1, 0});
  links_.clear();
  tops_.clear();
  items_.clear();
  limited_ = reached_bottom_ = false;
  peak_items_ = 0;
  peak_frames_ = 1;
  peak_depth_ = 0;
}

void Stepper::Load(const StackSet& stacks) {
  Clear();
  for (size_t f = 1; f < stacks.nodes.size(); ++f) {
    Frame frame{stacks.nodes[f], -1, -1, 0};
    for (const int32_t below : stacks.below[f]) {
      links_.push_back({below, frame.links});
      frame.links = static_cast<int32_t>(links_.size()) - 1;
      frame.depth = std::max(frame.depth, frames_[below].depth + 1);
    }
    peak_depth_ = std::max(peak_depth_, frame.depth);
    frames_.push_back(frame);
  }
  peak_frames_ = frames_.size();
}

Stepper::Range Stepper::Add(const std::vector<Top>& tops) {
  const size_t begin = tops_.size();
  tops_.insert(tops_.end(), tops.begin(), tops.end());
  return {begin, tops_.size()};
}

void Stepper::AddItem(size_t first, Top item) {
  for (size_t i = first; i < items_.size(); ++i) {
    if (items_[i] == item) return;
  }
  items_.push_back(item);
}

// The frame of a call, which callers at one position of the text share.
int32_t Stepper::FrameFor(size_t first_frame, const Automaton::Call& call,
                          int32_t below) {
  size_t f = first_frame;
  while (f < frames_.size() &&
         (frames_[f].node != call.target || frames_[f].entry != call.entry)) {
    ++f;
  }
  if (f == frames_.size()) frames_.push_back({call.target, call.entry, -1, 0});
  Frame& frame = frames_[f];
  for (int32_t i = frame.links; i >= 0; i = links_[i].next) {
    if (links_[i].frame == below) return static_cast<int32_t>(f);
  }
  links_.push_back({below, frame.links});
  frame.links = static_cast<int32_t>(links_.size()) - 1;
  return static_cast<int32_t>(f);
}

// A frame may get deeper ones below it after it is made. There are no circles,
// as no rule begins with itself.
void Stepper::SetDepths(size_t first_frame) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t f = first_frame; f < frames_.size(); ++f) {
      int32_t depth = 0;
      for (int32_t i = frames_[f].links; i >= 0; i = links_[i].next) {
        depth = std::max(depth, frames_[links_[i].frame].depth + 1);
      }
      changed |= depth != frames_[f].depth;
      frames_[f].depth = depth;
    }
  }
}

Stepper::Range Stepper::Close(Range tops) {
  const size_t first = items_.size(), first_frame = frames_.size();
  reached_bottom_ = false;
  for (size_t i = tops.begin; i < tops.end; ++i) AddItem(first, tops_[i]);
  for (size_t i = first; i < items_.size(); ++i) {
    if (items_.size() - first > kMaxItems) {
      limited_ = true;
      return {first, first};
    }
    const auto [id, below] = items_[i];
    const Automaton::Node& node = automaton_.node(id);
    for (const Automaton::Call& call : node.calls) {
      // A caller that ends where it resumes is not returned to.
      const int32_t frame = automaton_.node(call.target).last()
                                ? below
                                : FrameFor(first_frame, call, below);
      AddItem(first, {call.entry, frame});
    }
    if (!node.final) continue;
    if (below == 0) reached_bottom_ = true;
    // A rule that was called here and is empty needs no return: its caller has
    // the edges of what follows the call.
    if (below >= static_cast<int32_t>(first_frame)) continue;
    for (int32_t link = frames_[below].links; link >= 0;
         link = links_[link].next) {
      AddItem(first, {frames_[below].node, links_[link].frame});
    }
  }
  if (frames_.size() > first_frame) SetDepths(first_frame);
  peak_items_ = std::max(peak_items_, items_.size() - first);
  peak_frames_ = std::max(peak_frames_, frames_.size());
  return {first, items_.size()};
}

Stepper::Range Stepper::Match(Range items, uint8_t byte) {
  ++steps_;
  const size_t first = tops_.size();
  for (size_t i = items.begin; i < items.end; ++i) {
    const auto [id, frame] = items_[i];
    for (const Automaton::Edge& edge : automaton_.node(id).edges) {
      if (edge.low > byte) break;
      if (edge.high < byte) continue;
      if (frames_[frame].depth > kMaxDepth) {
        limited_ = true;
        continue;
      }
      const Top top{edge.target, frame};
      if (std::find(tops_.begin() + static_cast<std::ptrdiff_t>(first),
                    tops_.end(), top) == tops_.end()) {
        tops_.push_back(top);
      }
      peak_depth_ = std::max(peak_depth_, frames_[frame].depth);
    }
  }
  if (tops_.size() - first > kMaxItems) {
    limited_ = true;
    tops_.resize(first);
  }
  if (frames_.size() > kMaxFrames) {
    std::vector<bool> live;
    if (LiveFrames({first, tops_.size()}, live) > kMaxFrames) {
      limited_ = true;
      tops_.resize(first);
    }
  }
  return {first, tops_.size()};
}

bool Stepper::Complete(Range tops) const {
  // Frames that a rule that may end has returned to: no call is followed, as
  // callees of a complete text are empty, and their callers know.
  std::vector<bool> seen(frames_.size(), false);
  std::vector<int32_t> queue;
  const auto end_above = [&](int32_t node, int32_t frame) {
    if (!automaton_.node(node).final || seen[frame]) return;
    seen[frame] = true;
    queue.push_back(frame);
  };
  for (size_t i = tops.begin; i < tops.end; ++i) {
    end_above(tops_[i].node, tops_[i].frame);
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    const Frame& frame = frames_[queue[i]];
    for (int32_t link = frame.links; link >= 0; link = links_[link].next) {
      end_above(frame.node, links_[link].frame);
    }
  }
  return seen[0];
}

size_t Stepper::LiveFrames(Range tops, std::vector<bool>& live) const {
  live.assign(frames_.size(), false);
  std::vector<int32_t> queue{0};
  live[0] = true;
  const auto add = [&](int32_t frame) {
    if (!live[frame]) queue.push_back(frame);
    live[frame] = true;
  };
  for (size_t i = tops.begin; i < tops.end; ++i) add(tops_[i].frame);
  for (size_t i = 0; i < queue.size(); ++i) {
    for (int32_t link = frames_[queue[i]].links; link >= 0;
         link = links_[link].next) {
      add(links_[link].frame);
    }
  }
  return queue.size();
}

StackSet Stepper::Store(Range tops) {
  std::vector<bool> live;
  LiveFrames(tops, live);
  std::vector<int32_t> order;
  for (size_t f = 1; f < frames_.size(); ++f) {
    if (live[f]) order.push_back(static_cast<int32_t>(f));
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return frames_[a].depth < frames_[b].depth;
  });
  StackSet stored{{-1}, {{}}, {}};
  std::vector<int32_t> number(frames_.size(), 0);
  // What is below a frame is less deep, so that it has its number already.
  struct Named {
    int32_t node;
    std::vector<int32_t> below;
    int32_t frame;
  };
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    std::vector<Named> level;
    for (end = begin; end < order.size() &&
                      frames_[order[end]].depth == frames_[order[begin]].depth;
         ++end) {
      Named named{frames_[order[end]].node, {}, order[end]};
      for (int32_t link = frames_[order[end]].links; link >= 0;
           link = links_[link].next) {
        named.below.push_back(number[links_[link].frame]);
      }
      std::sort(named.below.begin(), named.below.end());
      named.below.erase(std::unique(named.below.begin(), named.below.end()),
                        named.below.end());
      level.push_back(std::move(named));
    }
    std::sort(level.begin(), level.end(), [](const Named& a, const Named& b) {
      return std::tie(a.node, a.below) < std::tie(b.node, b.below);
    });
    for (size_t i = 0; i < level.size(); ++i) {
      if (i == 0 || level[i].node != stored.nodes.back() ||
          level[i].below != stored.below.back()) {
        stored.nodes.push_back(level[i].node);
        stored.below.push_back(level[i].below);
      }
      number[level[i].frame] = static_cast<int32_t>(stored.nodes.size()) - 1;
    }
  }
  for (size_t i = tops.begin; i < tops.end; ++i) {
    stored.tops.push_back({tops_[i].node, number[tops_[i].frame]});
  }
  std::sort(stored.tops.begin(), stored.tops.end());
  stored.tops.erase(std::unique(stored.tops.begin(), stored.tops.end()),
                    stored.tops.end());
  return stored;
}

void Stepper::Rewind(const Mark& mark) {
  frames_.resize(mark.frames);
  links_.resize(mark.links);
  tops_.resize(mark.tops);
  items_.resize(mark.items);
}

}  // namespace tarn::grammar
