// What a grammar and a position in one may use. A source that needs more is
// refused; text that needs more has no continuation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn {

inline constexpr size_t kMaxGrammarBytes = size_t{1} << 16;  // of a source
/// Nodes of the automaton, repetitions written out.
inline constexpr int64_t kMaxGrammarNodes = 10'000;

namespace grammar {

/// Parentheses within each other in a source.
inline constexpr int64_t kMaxNesting = 100;
/// Expressions within each other.
inline constexpr int32_t kMaxExpressionDepth = 1000;
/// Nodes and edges before the automaton is made deterministic. Chains of
/// optional parts have edges to all that follows.
inline constexpr int64_t kMaxDraftNodes = 40'000;
inline constexpr int64_t kMaxEdges = 200'000;
/// Calls of rules that are open at one time, but for those that end their rule.
inline constexpr int32_t kMaxDepth = 1024;
/// Positions that are followed at one time. More are needed where as many rules
/// could have begun at one place of the text and none has been ruled out.
inline constexpr size_t kMaxItems = 256;
/// Open calls that the stacks of a state share.
inline constexpr size_t kMaxFrames = 4096;

}  // namespace grammar
}  // namespace tarn
