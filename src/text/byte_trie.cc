#include "text/byte_trie.h"

#include <algorithm>

namespace tarn {
namespace {

uint8_t ByteAt(std::string_view text, size_t at) {
  return static_cast<uint8_t>(text[at]);
}

}  // namespace

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> strings) {
  std::sort(strings.begin(), strings.end());
  // Breadth first, so that children come out side by side: a node stands for a
  // range of the sorted strings that agree in their first `depth` bytes.
  struct Range {
    uint32_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, static_cast<uint32_t>(strings.size()), 0}};
  nodes_.push_back({});
  for (size_t at = 0; at < nodes_.size(); ++at) {
    auto [begin, end, depth] = ranges[at];
    // The string that ends here sorts before its continuations.
    if (depth > 0 && strings[begin].first.size() == depth) {
      nodes_[at].id = strings[begin++].second;
    }
    nodes_[at].first = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const uint8_t byte = ByteAt(strings[begin].first, depth);
      uint32_t same = begin + 1;
      while (same < end && ByteAt(strings[same].first, depth) == byte) ++same;
      nodes_.push_back({0, 0, byte, -1});
      ranges.push_back({begin, same, depth + 1});
      ++nodes_[at].count;
      begin = same;
    }
  }
}

const ByteTrie::Node* ByteTrie::Child(const Node& node, uint8_t byte) const {
  const Node* begin = nodes_.data() + node.first;
  const Node* end = begin + node.count;
  const Node* child = std::lower_bound(
      begin, end, byte,
      [](const Node& n, uint8_t wanted) { return n.byte < wanted; });
  return child == end || child->byte != byte ? nullptr : child;
}

}  // namespace tarn
