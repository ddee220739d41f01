#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/grammar/draft.h"
#include "text/grammar/limits.h"

namespace tarn::grammar {
namespace {

// Which nodes reach the exit of their rule: over all edges, or over those that
// consume nothing. A call counts if the rule that it calls does. Linear time.
std::vector<bool> ReachExit(const Draft& draft, bool with_bytes) {
  struct Caller {
    int32_t from, other;  // other: what must be marked as well
  };
  const size_t count = draft.nodes.size();
  std::vector<std::vector<int32_t>> back(count);
  std::vector<std::vector<Caller>> callers(count);
  for (size_t i = 0; i < count; ++i) {
    const int32_t from = static_cast<int32_t>(i);
    const Draft::Node& node = draft.nodes[i];
    for (const int32_t to : node.jumps) back[to].push_back(from);
    if (with_bytes) {
      for (const Draft::Edge& edge : node.edges) {
        back[edge.target].push_back(from);
      }
    }
    for (const Draft::Call& call : node.calls) {
      const int32_t entry = draft.rules[call.rule].entry;
      callers[entry].push_back({from, call.target});
      callers[call.target].push_back({from, entry});
    }
  }
  std::vector<bool> marked(count, false);
  std::vector<int32_t> queue;
  const auto mark = [&](int32_t node) {
    if (marked[node]) return;
    marked[node] = true;
    queue.push_back(node);
  };
  for (const Draft::RuleNodes& rule : draft.rules) mark(rule.exit);
  while (!queue.empty()) {
    const int32_t node = queue.back();
    queue.pop_back();
    for (const int32_t from : back[node]) mark(from);
    for (const Caller& caller : callers[node]) {
      if (marked[caller.other]) mark(caller.from);
    }
  }
  return marked;
}

// Rules that each rule calls at its beginning. Jumps past empty rules are there
// already.
std::vector<std::vector<RuleId>> RulesCalledFirst(const Draft& draft) {
  std::vector<std::vector<RuleId>> called(draft.rules.size());
  std::vector<int32_t> seen(draft.nodes.size(), -1);
  std::vector<int32_t> queue;
  for (size_t r = 0; r < draft.rules.size(); ++r) {
    const auto add = [&](int32_t node) {
      if (seen[node] == static_cast<int32_t>(r)) return;
      seen[node] = static_cast<int32_t>(r);
      queue.push_back(node);
    };
    add(draft.rules[r].entry);
    while (!queue.empty()) {
      const Draft::Node& node = draft.nodes[queue.back()];
      queue.pop_back();
      for (const int32_t to : node.jumps) add(to);
      for (const Draft::Call& call : node.calls) {
        called[r].push_back(call.rule);
      }
    }
  }
  return called;
}

// Rules after those that they call, but for those in a circle or that call one,
// which are left out.
std::vector<RuleId> BottomUp(const std::vector<std::vector<RuleId>>& called) {
  std::vector<std::vector<RuleId>> callers(called.size());
  std::vector<size_t> open(called.size(), 0);
  std::vector<RuleId> order;
  for (size_t r = 0; r < called.size(); ++r) {
    open[r] = called[r].size();
    for (const RuleId other : called[r]) {
      callers[other].push_back(static_cast<RuleId>(r));
    }
    if (open[r] == 0) order.push_back(static_cast<RuleId>(r));
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const RuleId caller : callers[order[i]]) {
      if (--open[caller] == 0) order.push_back(caller);
    }
  }
  return order;
}

void RefuseLeftRecursion(const Draft& draft) {
  const auto called = RulesCalledFirst(draft);
  std::vector<bool> ends(draft.rules.size(), false);
  for (const RuleId rule : BottomUp(called)) ends[rule] = true;
  for (size_t r = 0; r < ends.size(); ++r) {
    if (ends[r]) continue;
    // From a rule that does not end, following such rules finds the circle.
    RuleId at = static_cast<RuleId>(r);
    for (size_t step = 0; step < ends.size(); ++step) {
      for (const RuleId other : called[at]) {
        if (ends[other]) continue;
        at = other;
        break;
      }
    }
    const auto& [name, entry, exit, keep, where] = draft.rules[at];
    throw FormatError(where.empty() ? "grammar" : "grammar: " + where,
                      "rules that do not begin with themselves",
                      StrCat(name, " at the beginning of ", name));
  }
}

void DropUseless(Draft& draft, const std::vector<bool>& useful) {
  for (Draft::Node& node : draft.nodes) {
    std::erase_if(node.edges,
                  [&](const Draft::Edge& e) { return !useful[e.target]; });
    std::erase_if(node.jumps, [&](int32_t to) { return !useful[to]; });
    std::erase_if(node.calls, [&](const Draft::Call& call) {
      return !useful[call.target] || !useful[draft.rules[call.rule].entry];
    });
  }
}

// The most nodes that a rule may have to be copied, and all copies together.
// About a line of a grammar, or the white space of one.
constexpr int64_t kInlinedNodes = 40, kInlinedInAll = 4000;
constexpr size_t kInlinedEdges = 100;

// Nodes of a rule, its entry first.
std::vector<int32_t> NodesOf(const Draft& draft, const Draft::RuleNodes& rule) {
  std::vector<int32_t> nodes{rule.entry};
  const auto add = [&](int32_t node) {
    for (const int32_t other : nodes) {
      if (other == node) return;
    }
    nodes.push_back(node);
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (static_cast<int64_t>(nodes.size()) > kInlinedNodes) break;
    const Draft::Node& node = draft.nodes[nodes[i]];
    for (const Draft::Edge& edge : node.edges) add(edge.target);
    for (const int32_t to : node.jumps) add(to);
    for (const Draft::Call& call : node.calls) add(call.target);
  }
  return nodes;
}

}  // namespace

void InlineRules(Draft& draft) {
  const size_t own_nodes = draft.nodes.size();
  std::vector<std::vector<int32_t>> small(draft.rules.size());
  for (size_t r = 0; r < draft.rules.size(); ++r) {
    if (draft.rules[r].keep) continue;
    std::vector<int32_t> nodes = NodesOf(draft, draft.rules[r]);
    bool leaf = static_cast<int64_t>(nodes.size()) <= kInlinedNodes;
    size_t edges = 0;
    for (size_t i = 0; leaf && i < nodes.size(); ++i) {
      const Draft::Node& node = draft.nodes[nodes[i]];
      edges += node.edges.size() + node.jumps.size();
      leaf = node.calls.empty() && edges <= kInlinedEdges;
    }
    if (leaf) small[r] = std::move(nodes);
  }
  int64_t added = 0;
  const int64_t room = std::min(
      kInlinedInAll, kMaxDraftNodes - static_cast<int64_t>(draft.nodes.size()));
  // A copy has at most 2 more edges than nodes and edges of the original.
  const int64_t most_edges =
      kMaxEdges - 2 * static_cast<int64_t>(kInlinedEdges);
  for (size_t n = 0; n < own_nodes; ++n) {
    std::vector<Draft::Call> kept;
    const std::vector<Draft::Call> calls = std::move(draft.nodes[n].calls);
    for (const Draft::Call& call : calls) {
      const std::vector<int32_t>& nodes = small[call.rule];
      if (nodes.empty() || added + static_cast<int64_t>(nodes.size()) > room ||
          draft.edge_count > most_edges) {
        kept.push_back(call);
        continue;
      }
      added += static_cast<int64_t>(nodes.size());
      std::vector<int32_t> copies;
      for (size_t i = 0; i < nodes.size(); ++i) {
        copies.push_back(draft.AddNode());
      }
      const auto copy = [&](int32_t node) {
        size_t i = 0;
        while (nodes[i] != node) ++i;
        return copies[i];
      };
      for (size_t i = 0; i < nodes.size(); ++i) {
        const Draft::Node original = draft.nodes[nodes[i]];
        for (const Draft::Edge& edge : original.edges) {
          draft.AddEdge(copies[i], edge.low, edge.high, copy(edge.target));
        }
        for (const int32_t to : original.jumps) {
          draft.AddJump(copies[i], copy(to));
        }
        if (nodes[i] == draft.rules[call.rule].exit) {
          draft.AddJump(copies[i], call.target);
        }
      }
      draft.AddJump(static_cast<int32_t>(n), copies[0]);
    }
    draft.nodes[n].calls = std::move(kept);
  }
}

void PrepareDraft(Draft& draft) {
  const std::vector<bool> empty = ReachExit(draft, false);
  for (size_t n = 0; n < draft.nodes.size(); ++n) {
    const std::vector<Draft::Call> calls = draft.nodes[n].calls;
    for (const Draft::Call& call : calls) {
      if (!empty[draft.rules[call.rule].entry]) continue;
      draft.AddJump(static_cast<int32_t>(n), call.target);
    }
  }
  RefuseLeftRecursion(draft);
  const std::vector<bool> useful = ReachExit(draft, true);
  if (!useful[draft.rules[0].entry]) {
    throw FormatError("grammar", "at least one sentence",
                      StrCat("a rule ", draft.rules[0].name, " without any"));
  }
  DropUseless(draft, useful);
  // Twice: what calls nothing else after the first time is small as well.
  InlineRules(draft);
  InlineRules(draft);
}

}  // namespace tarn::grammar
