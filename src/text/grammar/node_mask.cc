#include "text/grammar/node_mask.h"

#include <algorithm>

namespace tarn::grammar {
namespace {

// The automaton with its stacks forgotten: a rule may return to any caller.
// Finds what no caller at all could take.
class LooseSteps {
 public:
  // Nodes, sorted; or any node at all, where they are too many to follow.
  struct Nodes {
    std::vector<int32_t> list;
    bool any = false;
    bool empty() const { return !any && list.empty(); }
  };

  explicit LooseSteps(const Automaton& automaton)
      : automaton_(automaton),
        seen_(static_cast<size_t>(automaton.size()), 0) {}

  // All that calls and returns reach; not sorted.
  Nodes Close(std::vector<int32_t> list) {
    ++round_;
    Nodes closed;
    const auto add = [&](int32_t node) {
      if (seen_[node] != round_) closed.list.push_back(node);
      seen_[node] = round_;
    };
    for (const int32_t node : list) add(node);
    for (size_t i = 0; i < closed.list.size(); ++i) {
      if (closed.list.size() > kMostNodes) return {{}, true};
      const Automaton::Node& node = automaton_.node(closed.list[i]);
      for (const Automaton::Call& call : node.calls) add(call.entry);
      if (!node.final) continue;
      for (const int32_t to : automaton_.returns(node.rule)) add(to);
    }
    return closed;
  }
  Nodes Step(const Nodes& closed, uint8_t byte) {
    if (closed.any) return closed;
    std::vector<int32_t> next;
    for (const int32_t id : closed.list) {
      for (const Automaton::Edge& edge : automaton_.node(id).edges) {
        if (edge.low <= byte && byte <= edge.high) next.push_back(edge.target);
      }
    }
    return Close(std::move(next));
  }

 private:
  static constexpr size_t kMostNodes = 256;
  const Automaton& automaton_;
  std::vector<uint32_t> seen_;
  uint32_t round_ = 0;
};

// A depth of the search.
struct Level {
  Stepper::Range items;
  Stepper::Mark mark;
  bool left = false;  // the rule may have ended here
  // Where the token may have left before, and what callers may be at.
  struct Exit {
    size_t depth;
    LooseSteps::Nodes nodes;
  };
  std::vector<Exit> exits;
};

class NodeMaskMaker {
 public:
  NodeMaskMaker(const Automaton& automaton, const TokenTrie& tokens,
                int32_t node)
      : tokens_(tokens), stepper_(automaton), loose_(automaton) {
    const Automaton::Node& start = automaton.node(node);
    callers_ = loose_.Close(automaton.returns(start.rule));
    Descend(stepper_.Add({{node, 0}}), {});
    // The caller of the mask follows returns that come before any byte.
    levels_.back().left = false;
  }

  NodeMask Make(int64_t vocab_size, uint64_t& steps) {
    for (int32_t node = 0; node < tokens_.size();) {
      node = Visit(node) ? node + 1 : tokens_.end(node);
    }
    std::vector<std::pair<std::string_view, int32_t>> rests;
    rests.reserve(leaving_.size());
    for (const Leaving& leaving : leaving_) {
      rests.emplace_back(std::string_view(texts_).substr(
                             leaving.begin, leaving.end - leaving.begin),
                         leaving.id);
    }
    NodeMask mask;
    mask.accepted = TokenSet(std::move(accepted_), vocab_size);
    mask.leaving = TokenTrie(std::move(rests));
    mask.peak_items = stepper_.peak_items();
    mask.peak_frames = stepper_.peak_frames();
    mask.peak_depth = stepper_.peak_depth();
    mask.limited = stepper_.limited();
    steps += stepper_.steps();
    return mask;
  }

 private:
  struct Leaving {
    size_t begin, end;  // of texts_
    int32_t id;
  };

  void Descend(Stepper::Range tops, std::vector<Level::Exit> exits) {
    Level level;
    level.items = stepper_.Close(tops);
    level.left = stepper_.reached_bottom();
    level.mark = stepper_.Save();
    level.exits = std::move(exits);
    levels_.push_back(std::move(level));
  }

  // Whether any token of the subtree may follow.
  bool Visit(int32_t node) {
    const auto depth = static_cast<size_t>(tokens_.depth(node));
    const uint8_t byte = tokens_.byte(node);
    levels_.resize(depth);
    path_.resize(depth - 1);
    path_.push_back(static_cast<char>(byte));
    const Level& level = levels_.back();
    stepper_.Rewind(level.mark);
    const Stepper::Range tops = stepper_.Match(level.items, byte);
    std::vector<Level::Exit> exits;
    const auto leave = [&](size_t at, const LooseSteps::Nodes& nodes) {
      LooseSteps::Nodes next = loose_.Step(nodes, byte);
      if (!next.empty()) exits.push_back({at, std::move(next)});
    };
    for (const Level::Exit& exit : level.exits) leave(exit.depth, exit.nodes);
    if (level.left) leave(depth - 1, callers_);
    if (tops.empty() && exits.empty()) return false;
    for (const int32_t id : tokens_.ids(node)) {
      if (!tops.empty()) {
        accepted_.push_back(id);
        continue;
      }
      for (const Level::Exit& exit : exits) {
        const size_t begin = texts_.size();
        texts_.append(path_, exit.depth);
        leaving_.push_back({begin, texts_.size(), id});
      }
    }
    if (tokens_.end(node) > node + 1) Descend(tops, std::move(exits));
    return true;
  }

  const TokenTrie& tokens_;
  Stepper stepper_;
  LooseSteps loose_;
  LooseSteps::Nodes callers_;
  std::vector<Level> levels_;
  std::string path_;
  std::vector<int32_t> accepted_;
  std::string texts_;
  std::vector<Leaving> leaving_;
};

}  // namespace

TokenSet::TokenSet(std::vector<int32_t> ids, int64_t vocab_size) {
  if (static_cast<int64_t>(ids.size()) <= vocab_size / 32) {
    list_ = std::move(ids);
    list_.shrink_to_fit();
    return;
  }
  bits_.assign(static_cast<size_t>((vocab_size + 31) / 32), 0);
  for (const int32_t id : ids) {
    bits_[static_cast<size_t>(id / 32)] |= uint32_t{1} << (id % 32);
  }
}

void TokenSet::AddTo(std::span<uint32_t> mask) const {
  for (size_t i = 0; i < bits_.size(); ++i) mask[i] |= bits_[i];
  for (const int32_t id : list_) {
    mask[static_cast<size_t>(id / 32)] |= uint32_t{1} << (id % 32);
  }
}

NodeMask MakeNodeMask(const Automaton& automaton, const TokenTrie& tokens,
                      int64_t vocab_size, int32_t node, uint64_t& steps) {
  return NodeMaskMaker(automaton, tokens, node).Make(vocab_size, steps);
}

}  // namespace tarn::grammar
