// A vocabulary in the order in which a depth-first search meets it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tarn::grammar {

/// Byte strings with ids, strings and ids in any number per other. Nodes are in
/// preorder: a search that gives up at node i continues at `end(i)`. Immutable;
/// thread-safe. 12 bytes a node and 4 an id.
class TokenTrie {
 public:
  TokenTrie() = default;
  /// Strings must not be empty. O(total bytes log strings).
  explicit TokenTrie(std::vector<std::pair<std::string_view, int32_t>> strings);

  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  uint8_t byte(int32_t node) const { return nodes_[node].byte; }
  /// Of the bytes that lead here: 1 for a first byte.
  int32_t depth(int32_t node) const { return nodes_[node].depth; }
  /// The first node after this one's subtree.
  int32_t end(int32_t node) const { return nodes_[node].end; }
  /// Ids of the strings that end here.
  std::span<const int32_t> ids(int32_t node) const {
    const auto begin = static_cast<size_t>(nodes_[node].ids);
    const size_t end = node + 1 < size()
                           ? static_cast<size_t>(nodes_[node + 1].ids)
                           : ids_.size();
    return std::span(ids_).subspan(begin, end - begin);
  }
  int32_t longest() const { return longest_; }
  size_t bytes() const {
    return nodes_.size() * sizeof(Node) + ids_.size() * sizeof(int32_t);
  }

 private:
  struct Node {
    int32_t end = 0;
    int32_t ids = 0;  // where its ids begin in ids_
    uint32_t depth : 24 = 0;
    uint32_t byte : 8 = 0;
  };
  std::vector<Node> nodes_;
  std::vector<int32_t> ids_;
  int32_t longest_ = 0;
};

}  // namespace tarn::grammar
