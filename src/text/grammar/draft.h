// A grammar's rules as networks of nodes with byte edges, edges that consume
// nothing and calls of other rules: Thompson's construction. Not yet what runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/grammar/expression.h"

namespace tarn::grammar {

struct Draft {
  struct Edge {
    uint8_t low, high;
    int32_t target;
  };
  struct Call {
    RuleId rule;
    int32_t target;  // where the caller resumes
  };
  struct Node {
    std::vector<Edge> edges;
    std::vector<int32_t> jumps;  // edges that consume nothing
    std::vector<Call> calls;
  };
  struct RuleNodes {
    std::string name;
    int32_t entry = 0, exit = 0;
    bool keep = false;
    std::string where;
  };
  std::vector<Node> nodes;
  std::vector<RuleNodes> rules;
  int64_t edge_count = 0;
  std::string where;  // of the rule that is being written, for errors

  /// Throws FormatError above kMaxDraftNodes.
  int32_t AddNode();
  /// These throw FormatError above kMaxEdges in total.
  void AddEdge(int32_t from, uint8_t low, uint8_t high, int32_t to);
  void AddJump(int32_t from, int32_t to);
  void AddCall(int32_t from, RuleId rule, int32_t to);
};

/// Writes repetitions out. Throws FormatError where that takes more nodes than
/// allowed; time is bounded by the same limit. Recursion is as deep as
/// expressions nest.
Draft MakeDraft(const Source& source);

/// Makes a draft ready to become an automaton: adds jumps past calls of rules
/// that have the empty sentence, drops what no sentence uses, and copies small
/// rules into those that call them. Throws FormatError that names a rule that
/// begins with itself, or for a grammar without sentences.
void PrepareDraft(Draft& draft);

/// Small rules that call no others replace their calls (part of PrepareDraft).
void InlineRules(Draft& draft);

}  // namespace tarn::grammar
