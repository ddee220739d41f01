// Which tokens may follow at one node of the automaton, whatever the calls
// below it are: computed once. Those that leave the node's rule on the way
// depend on these calls, so that what they have after it is kept for later.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/stacks.h"
#include "text/grammar/token_trie.h"

namespace tarn::grammar {

/// A set of token ids: a list, or a bit for each where that is smaller.
class TokenSet {
 public:
  TokenSet() = default;
  /// ids: distinct, in [0, vocab_size).
  TokenSet(std::vector<int32_t> ids, int64_t vocab_size);
  void AddTo(std::span<uint32_t> mask) const;
  size_t bytes() const { return (list_.size() + bits_.size()) * 4; }

 private:
  std::vector<int32_t> list_;
  std::vector<uint32_t> bits_;
};

/// Immutable; thread-safe.
struct NodeMask {
  TokenSet accepted;
  /// What tokens have after leaving the rule, with their ids; only what any
  /// caller of the rule could take.
  TokenTrie leaving;
  /// What following any token took; `limited`: more than is allowed.
  size_t peak_items = 0, peak_frames = 0;
  int32_t peak_depth = 0;
  bool limited = false;

  size_t bytes() const {
    return sizeof(NodeMask) + accepted.bytes() + leaving.bytes();
  }
};

/// Follows all tokens from a node: a step of the automaton for each byte of the
/// vocabulary's trie that tokens share. `steps` grows by their number.
NodeMask MakeNodeMask(const Automaton& automaton, const TokenTrie& tokens,
                      int64_t vocab_size, int32_t node, uint64_t& steps);

/// Follows the trie's strings from a position, which is not empty; visit(node)
/// where some stack survives. `stepper` is left as it was.
template <typename Visit>
void FollowTrie(Stepper& stepper, Stepper::Range tops, const TokenTrie& trie,
                const Visit& visit) {
  struct Level {
    Stepper::Range items;
    Stepper::Mark mark;  // with the items, before any byte
  };
  const Stepper::Mark begin = stepper.Save();
  std::vector<Level> levels;
  const auto descend = [&](Stepper::Range from) {
    const Stepper::Range items = stepper.Close(from);
    levels.push_back({items, stepper.Save()});
  };
  descend(tops);
  for (int32_t node = 0; node < trie.size();) {
    const auto depth = static_cast<size_t>(trie.depth(node));
    levels.resize(depth);
    stepper.Rewind(levels.back().mark);
    const Stepper::Range next =
        stepper.Match(levels.back().items, trie.byte(node));
    if (next.empty()) {
      node = trie.end(node);
      continue;
    }
    visit(node);
    if (trie.end(node) > node + 1) descend(next);
    ++node;
  }
  stepper.Rewind(begin);
}

}  // namespace tarn::grammar
