// One rule's network without edges that consume nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "text/grammar/automaton.h"

namespace tarn::grammar {

/// A rule by itself: node 0 is its entry; calls name rules by number in
/// `entry`.
using RuleGraph = std::vector<Automaton::Node>;

/// The rule that begins at `entry` and ends at `exit`, deterministic (subset
/// construction over bytes and rules) and minimal where that stays within a few
/// times its size, and otherwise with edges that overlap. Throws FormatError
/// above the limits on nodes and edges.
RuleGraph WithoutJumps(const Draft& draft, int32_t entry, int32_t exit);

/// Merges nodes that no text tells apart. Edges must not overlap. Gives up,
/// returning the graph as it was, after a bounded number of steps.
RuleGraph Minimised(RuleGraph graph);

}  // namespace tarn::grammar
