#include "text/grammar/automaton.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "text/grammar/determinise.h"
#include "text/grammar/limits.h"

namespace tarn::grammar {

Automaton::Automaton(const Draft& draft) {
  // Rules in the order in which the root reaches them; others are left out.
  std::vector<RuleId> order{0};
  std::vector<int32_t> rank(draft.rules.size(), -1), entries;
  rank[0] = 0;
  for (size_t r = 0; r < order.size(); ++r) {
    const Draft::RuleNodes& rule = draft.rules[order[r]];
    RuleGraph graph = WithoutJumps(draft, rule.entry, rule.exit);
    const int32_t first = size();
    if (first + static_cast<int64_t>(graph.size()) > kMaxGrammarNodes) {
      throw FormatError("grammar",
                        StrCat("at most ", kMaxGrammarNodes,
                               " nodes with repetitions written out"),
                        "more");
    }
    entries.push_back(first);
    for (Node& node : graph) {
      node.rule = static_cast<int32_t>(r);
      for (Edge& edge : node.edges) edge.target += first;
      for (Call& call : node.calls) {
        call.target += first;
        if (rank[call.entry] < 0) {
          rank[call.entry] = static_cast<int32_t>(order.size());
          order.push_back(call.entry);
        }
        call.entry = rank[call.entry];
      }
      nodes_.push_back(std::move(node));
    }
  }
  returns_.resize(order.size());
  uint64_t hash = 0;
  const auto add = [&](uint64_t word) { hash = Mix(hash ^ word) + 1; };
  for (Node& node : nodes_) {
    add(node.final);
    for (const Edge& edge : node.edges) {
      add((uint64_t{edge.low} << 40) | (uint64_t{edge.high} << 32) |
          static_cast<uint32_t>(edge.target));
    }
    for (Call& call : node.calls) {
      returns_[call.entry].push_back(call.target);
      call.entry = entries[call.entry];
      add((uint64_t{1} << 63) | (uint64_t(call.entry) << 32) |
          static_cast<uint32_t>(call.target));
    }
    add(node.edges.size() + (uint64_t{node.calls.size()} << 32));
  }
  for (std::vector<int32_t>& nodes : returns_) {
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  }
  fingerprint_ = hash;
}

}  // namespace tarn::grammar
