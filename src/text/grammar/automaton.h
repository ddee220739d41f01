// The pushdown automaton that runs: byte edges, calls of rules, returns. No
// edge is without a byte and no rule begins with itself, so that following all
// calls from a node ends. Most rules are deterministic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/grammar/draft.h"

namespace tarn::grammar {

/// Immutable; thread-safe.
class Automaton {
 public:
  struct Edge {
    uint8_t low, high;
    int32_t target;
  };
  struct Call {
    int32_t entry;   // of the rule that is called
    int32_t target;  // where its caller resumes
  };
  struct Node {
    std::vector<Edge> edges;  // sorted by low; they may overlap
    std::vector<Call> calls;
    int32_t rule = 0;
    bool final = false;  // the rule may end here
    /// The rule must end here: a call that leads here need not be kept.
    bool last() const { return final && edges.empty() && calls.empty(); }
  };

  /// draft: prepared. Throws FormatError above kMaxGrammarNodes and kMaxEdges.
  explicit Automaton(const Draft& draft);

  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  const Node& node(int32_t id) const { return nodes_[id]; }
  /// Where the root begins.
  int32_t entry() const { return 0; }
  /// Where callers of a rule resume: sorted.
  const std::vector<int32_t>& returns(int32_t rule) const {
    return returns_[rule];
  }
  /// Of all that follows from the automaton: for saved states.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  std::vector<Node> nodes_;
  std::vector<std::vector<int32_t>> returns_;
  uint64_t fingerprint_ = 0;
};

}  // namespace tarn::grammar
