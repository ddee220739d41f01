#include "text/grammar/determinise.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/error.h"
#include "text/grammar/limits.h"

namespace tarn::grammar {
namespace {

using NodeSet = std::vector<int32_t>;  // sorted

// Nodes that a set of nodes reaches over jumps.
class Closure {
 public:
  explicit Closure(const Draft& draft)
      : draft_(draft), seen_(draft.nodes.size(), 0) {}

  NodeSet Of(const NodeSet& set) {
    ++round_;
    NodeSet closed;
    const auto add = [&](int32_t node) {
      if (seen_[node] == round_) return;
      seen_[node] = round_;
      closed.push_back(node);
    };
    for (const int32_t node : set) add(node);
    for (size_t i = 0; i < closed.size(); ++i) {
      for (const int32_t to : draft_.nodes[closed[i]].jumps) add(to);
    }
    std::sort(closed.begin(), closed.end());
    return closed;
  }

 private:
  const Draft& draft_;
  std::vector<int64_t> seen_;
  int64_t round_ = 0;
};

void SortUnique(NodeSet& set) {
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
}

// Subset construction over the symbols of a rule: bytes and rules. The closure
// of a set costs its size, so the sum of sizes bounds the time.
class SubsetBuilder {
 public:
  SubsetBuilder(const Draft& draft, int32_t exit)
      : draft_(draft), exit_(exit), closure_(draft) {}

  // Nothing where it takes more than `most` nodes or `work` steps.
  std::optional<RuleGraph> Deterministic(int32_t entry, size_t most,
                                         int64_t work) {
    NodeOf({entry});
    for (size_t i = 0; i < graph_.size(); ++i) {
      const NodeSet set = closure_.Of(sets_[i]);
      work -= static_cast<int64_t>(set.size());
      Automaton::Node node;
      std::map<RuleId, NodeSet> calls;
      std::vector<Draft::Edge> edges;
      for (const int32_t from : set) {
        node.final |= from == exit_;
        const Draft::Node& part = draft_.nodes[from];
        edges.insert(edges.end(), part.edges.begin(), part.edges.end());
        for (const Draft::Call& call : part.calls) {
          calls[call.rule].push_back(call.target);
        }
      }
      work -= static_cast<int64_t>(edges.size());
      if (work < 0) return std::nullopt;
      node.edges = Split(std::move(edges), work);
      for (auto& [rule, targets] : calls) {
        SortUnique(targets);
        node.calls.push_back({rule, NodeOf(std::move(targets))});
      }
      if (graph_.size() > most || work < 0) return std::nullopt;
      graph_[i] = std::move(node);
    }
    return std::move(graph_);
  }

  // A node for each target of an edge or call.
  RuleGraph Overlapping(int32_t entry) {
    NodeOf({entry});
    int64_t edges = 0;
    for (size_t i = 0; i < graph_.size(); ++i) {
      Automaton::Node node;
      for (const int32_t from : closure_.Of(sets_[i])) {
        node.final |= from == exit_;
        const Draft::Node& part = draft_.nodes[from];
        edges += static_cast<int64_t>(part.edges.size() + part.calls.size());
        for (const Draft::Edge& edge : part.edges) {
          node.edges.push_back({edge.low, edge.high, NodeOf({edge.target})});
        }
        for (const Draft::Call& call : part.calls) {
          node.calls.push_back({call.rule, NodeOf({call.target})});
        }
        if (edges > kMaxEdges) {
          throw FormatError("grammar", StrCat("at most ", kMaxEdges, " edges"),
                            "more");
        }
      }
      std::sort(node.edges.begin(), node.edges.end(),
                [](const auto& a, const auto& b) { return a.low < b.low; });
      graph_[i] = std::move(node);
    }
    return std::move(graph_);
  }

 private:
  int32_t NodeOf(NodeSet set) {
    const auto [at, added] =
        ids_.try_emplace(set, static_cast<int32_t>(sets_.size()));
    if (added) {
      sets_.push_back(std::move(set));
      graph_.emplace_back();
    }
    return at->second;
  }

  // Edges that do not overlap, neighbours to one target joined.
  std::vector<Automaton::Edge> Split(std::vector<Draft::Edge> edges,
                                     int64_t& work) {
    std::vector<Automaton::Edge> split;
    std::vector<int> cuts;
    for (const Draft::Edge& edge : edges) {
      cuts.push_back(edge.low);
      cuts.push_back(edge.high + 1);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      work -= static_cast<int64_t>(edges.size());
      if (work < 0) return split;
      NodeSet targets;
      for (const Draft::Edge& edge : edges) {
        if (edge.low <= cuts[i] && cuts[i] <= edge.high) {
          targets.push_back(edge.target);
        }
      }
      if (targets.empty()) continue;
      SortUnique(targets);
      const int32_t target = NodeOf(std::move(targets));
      const auto low = static_cast<uint8_t>(cuts[i]);
      const auto high = static_cast<uint8_t>(cuts[i + 1] - 1);
      if (!split.empty() && split.back().target == target &&
          split.back().high + 1 == low) {
        split.back().high = high;
      } else {
        split.push_back({low, high, target});
      }
    }
    return split;
  }

  const Draft& draft_;
  const int32_t exit_;
  Closure closure_;
  std::map<NodeSet, int32_t> ids_;
  std::vector<NodeSet> sets_;
  RuleGraph graph_;
};

// Nodes of a rule in the draft.
size_t DraftSize(const Draft& draft, int32_t entry) {
  std::vector<bool> seen(draft.nodes.size(), false);
  std::vector<int32_t> queue{entry};
  seen[entry] = true;
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto add = [&](int32_t node) {
      if (!seen[node]) queue.push_back(node);
      seen[node] = true;
    };
    for (const auto& edge : draft.nodes[queue[i]].edges) add(edge.target);
    for (const int32_t to : draft.nodes[queue[i]].jumps) add(to);
    for (const auto& call : draft.nodes[queue[i]].calls) add(call.target);
  }
  return queue.size();
}

}  // namespace

RuleGraph WithoutJumps(const Draft& draft, int32_t entry, int32_t exit) {
  // Twice the size is common for characters of several bytes; a rule that
  // takes eight times as much takes exponentially much.
  const size_t most =
      std::min<size_t>(8 * DraftSize(draft, entry) + 64, 4 * kMaxGrammarNodes);
  constexpr int64_t kWork = 4'000'000;
  if (auto graph =
          SubsetBuilder(draft, exit).Deterministic(entry, most, kWork)) {
    RuleGraph minimal = Minimised(std::move(*graph));
    if (static_cast<int64_t>(minimal.size()) <= kMaxGrammarNodes) {
      return minimal;
    }
  }
  return SubsetBuilder(draft, exit).Overlapping(entry);
}

namespace {

// The fewest and the most steps to an end of the rule, which nodes that may be
// merged share; -1: any number. Chains of repetitions differ in these already,
// so that few rounds of splitting remain.
std::vector<std::pair<int32_t, int32_t>> StepsToEnd(const RuleGraph& graph) {
  std::vector<std::vector<int32_t>> back(graph.size());
  std::vector<size_t> open(graph.size(), 0);
  std::vector<std::pair<int32_t, int32_t>> steps(graph.size(), {-1, -1});
  std::vector<int32_t> fewest, most;  // queues
  for (size_t i = 0; i < graph.size(); ++i) {
    const auto from = static_cast<int32_t>(i);
    for (const auto& edge : graph[i].edges) back[edge.target].push_back(from);
    for (const auto& call : graph[i].calls) back[call.target].push_back(from);
    open[i] = graph[i].edges.size() + graph[i].calls.size();
    if (graph[i].final) {
      steps[i].first = 0;
      fewest.push_back(from);
    }
    if (open[i] == 0) most.push_back(from);
  }
  for (size_t i = 0; i < fewest.size(); ++i) {
    for (const int32_t from : back[fewest[i]]) {
      if (steps[from].first >= 0) continue;
      steps[from].first = steps[fewest[i]].first + 1;
      fewest.push_back(from);
    }
  }
  // A node is done when all that follows it is; those before a loop never are.
  std::vector<int32_t> longest(graph.size(), 0);
  for (size_t i = 0; i < most.size(); ++i) {
    const int32_t node = most[i];
    steps[node].second = longest[node];
    for (const int32_t from : back[node]) {
      longest[from] = std::max(longest[from], longest[node] + 1);
      if (--open[from] == 0) most.push_back(from);
    }
  }
  return steps;
}

}  // namespace

RuleGraph Minimised(RuleGraph graph) {
  // Moore's algorithm: classes are split until no two nodes of one have edges
  // to different classes.
  size_t edges = 1;
  for (const auto& node : graph) edges += node.edges.size() + node.calls.size();
  int64_t work = 1'000'000;
  std::vector<int32_t> classes(graph.size());
  {
    std::map<std::pair<int32_t, int32_t>, int32_t> keys;
    const auto steps = StepsToEnd(graph);
    for (size_t i = 0; i < graph.size(); ++i) {
      const auto next = static_cast<int32_t>(keys.size());
      classes[i] = keys.try_emplace(steps[i], next).first->second;
    }
  }
  size_t count = 0;
  for (bool changed = true; changed;) {
    work -= static_cast<int64_t>(edges + graph.size());
    if (work < 0) return graph;
    std::map<std::vector<int32_t>, int32_t> keys;
    std::vector<int32_t> next(graph.size());
    for (size_t i = 0; i < graph.size(); ++i) {
      std::vector<int32_t> key{classes[i]};
      int32_t last = -1, end = -1;  // class and end of the run of bytes
      for (const Automaton::Edge& edge : graph[i].edges) {
        const int32_t target = classes[edge.target];
        if (target == last && edge.low == end) {
          key.back() = edge.high;
        } else {
          key.insert(key.end(), {target, edge.low, edge.high});
        }
        last = target;
        end = edge.high + 1;
      }
      key.push_back(-1);
      for (const Automaton::Call& call : graph[i].calls) {
        key.insert(key.end(), {call.entry, classes[call.target]});
      }
      const auto number = static_cast<int32_t>(keys.size());
      next[i] = keys.try_emplace(std::move(key), number).first->second;
    }
    changed = keys.size() != count;
    count = keys.size();
    classes = std::move(next);
  }
  if (count == graph.size()) return graph;
  // Classes are numbered by their first node, so that the entry stays first.
  RuleGraph minimal(count);
  std::vector<bool> made(count, false);
  for (size_t i = 0; i < graph.size(); ++i) {
    if (made[classes[i]]) continue;
    made[classes[i]] = true;
    Automaton::Node& node = minimal[classes[i]];
    node.final = graph[i].final;
    node.calls = std::move(graph[i].calls);
    for (Automaton::Call& call : node.calls) {
      call.target = classes[call.target];
    }
    for (Automaton::Edge edge : graph[i].edges) {
      edge.target = classes[edge.target];
      if (!node.edges.empty() && node.edges.back().target == edge.target &&
          node.edges.back().high + 1 == edge.low) {
        node.edges.back().high = edge.high;
      } else {
        node.edges.push_back(edge);
      }
    }
  }
  return minimal;
}

}  // namespace tarn::grammar
