#include "text/grammar/token_trie.h"

#include <algorithm>

namespace tarn::grammar {

TokenTrie::TokenTrie(
    std::vector<std::pair<std::string_view, int32_t>> strings) {
  std::sort(strings.begin(), strings.end());
  std::vector<int32_t> path;  // nodes of the last string
  std::string_view last;
  ids_.reserve(strings.size());
  for (const auto& [text, id] : strings) {
    size_t shared = 0;
    while (shared < last.size() && shared < text.size() &&
           last[shared] == text[shared]) {
      ++shared;
    }
    while (path.size() > shared) {
      nodes_[path.back()].end = size();
      path.pop_back();
    }
    for (size_t i = shared; i < text.size(); ++i) {
      Node node;
      node.ids = static_cast<int32_t>(ids_.size());
      node.depth = static_cast<uint32_t>(i + 1) & 0xFFFFFF;
      node.byte = static_cast<uint8_t>(text[i]);
      path.push_back(size());
      nodes_.push_back(node);
    }
    // Sorted: no node has been added since this string's last.
    ids_.push_back(id);
    last = text;
    longest_ = std::max(longest_, static_cast<int32_t>(text.size()));
  }
  for (const int32_t node : path) nodes_[node].end = size();
}

}  // namespace tarn::grammar
