// Longest match of a set of byte strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tarn {

/// Immutable after construction; thread-safe. 12 bytes a node.
class ByteTrie {
 public:
  struct Match {
    int32_t id = -1;   // -1: no string of the set begins here
    size_t bytes = 0;  // of the string
  };

  ByteTrie() = default;
  /// Strings must be distinct and not empty; ids >= 0. O(total bytes).
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> strings);

  bool empty() const { return nodes_.size() <= 1; }
  /// The longest string that `text` begins with. O(its length) steps, each a
  /// search among at most 256 children.
  Match Longest(std::string_view text) const {
    Match best;
    VisitPrefixes(text, [&](int32_t id, size_t bytes) { best = {id, bytes}; });
    return best;
  }
  /// visit(id, bytes) of every string that `text` begins with, shortest first.
  /// As many steps as Longest.
  template <typename Visit>
  void VisitPrefixes(std::string_view text, const Visit& visit) const {
    const Node* node = nodes_.empty() ? nullptr : nodes_.data();
    for (size_t at = 0; node != nullptr && at < text.size(); ++at) {
      node = Child(*node, static_cast<uint8_t>(text[at]));
      if (node != nullptr && node->id >= 0) visit(node->id, at + 1);
    }
  }

 private:
  // A node's children are adjacent, sorted by byte.
  struct Node {
    uint32_t first = 0;  // index of its first child
    uint16_t count = 0;  // of children
    uint8_t byte = 0;    // that leads here
    int32_t id = -1;     // of the string that ends here
  };
  // Null: there is none.
  const Node* Child(const Node& node, uint8_t byte) const;

  std::vector<Node> nodes_;
};

}  // namespace tarn
