#include "runtime/session/prefix_cache.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/model/impl.h"
#include "runtime/session/speculation.h"

namespace tarn {

struct PrefixCache::Node {
  Node* parent = nullptr;     // null: a root
  std::vector<int32_t> edge;  // from the parent; not empty but for roots
  size_t depth = 0;           // tokens from the root
  std::map<int32_t, Node*> children;  // by the first token of their edge
  std::optional<Snapshot> snapshot;
  Rows rows;  // at least depth of them, where states grow
  uint64_t used = 0;
  size_t index = 0;  // in nodes_
};

PrefixCache::PrefixCache(int64_t max_bytes) : max_bytes_(max_bytes) {
  if (max_bytes < 0) {
    throw ArgumentError("prefix cache: max_bytes", "0 or more",
                        StrCat(max_bytes));
  }
}

PrefixCache::PrefixCache(PrefixCache&&) noexcept = default;
PrefixCache& PrefixCache::operator=(PrefixCache&&) noexcept = default;
PrefixCache::~PrefixCache() = default;

PrefixCache::Node* PrefixCache::NewNode(Node* parent,
                                        std::vector<int32_t> edge) {
  auto node = std::make_unique<Node>();
  node->parent = parent;
  node->depth = (parent == nullptr ? 0 : parent->depth) + edge.size();
  node->index = nodes_.size();
  node->edge = std::move(edge);
  Node* made = node.get();
  if (parent != nullptr) parent->children[made->edge.front()] = made;
  nodes_.push_back(std::move(node));
  return made;
}

PrefixCache::Node* PrefixCache::Root(const std::string& space) {
  Node*& root = roots_[space];
  if (root == nullptr) root = NewNode(nullptr, {});
  return root;
}

PrefixCache::Place PrefixCache::Walk(Node* root,
                                     std::span<const int32_t> tokens) const {
  Place place{root, 0};
  while (place.depth == place.node->depth && place.depth < tokens.size()) {
    const auto next = place.node->children.find(tokens[place.depth]);
    if (next == place.node->children.end()) break;
    place.node = next->second;
    const std::vector<int32_t>& edge = place.node->edge;
    size_t same = 0;
    while (same < edge.size() && place.depth < tokens.size() &&
           edge[same] == tokens[place.depth]) {
      ++same;
      ++place.depth;
    }
  }
  return place;
}

// Cuts a node's edge after `at` of its tokens.
void PrefixCache::Split(Node* node, size_t at) {
  const auto cut = node->edge.begin() + static_cast<ptrdiff_t>(at);
  Node* upper = NewNode(node->parent, {node->edge.begin(), cut});
  node->edge.erase(node->edge.begin(), cut);
  node->parent = upper;
  upper->children[node->edge.front()] = node;
}

// The node after these tokens, made where there is none.
PrefixCache::Node* PrefixCache::NodeAt(Node* root,
                                       std::span<const int32_t> tokens) {
  Place place = Walk(root, tokens);
  if (place.depth < place.node->depth) {
    const size_t begin = place.node->depth - place.node->edge.size();
    Split(place.node, place.depth - begin);
    place.node = place.node->parent;
  }
  if (place.depth == tokens.size()) return place.node;
  const auto rest = tokens.subspan(place.depth);
  return NewNode(place.node, {rest.begin(), rest.end()});
}

int64_t PrefixCache::Restore(const std::string& space,
                             std::span<const int32_t> tokens,
                             Session& session) {
  ++counts_.lookups;
  counts_.asked_tokens += tokens.size();
  Session fresh(session.model(), session.snapshots_.options());
  if (session.speculation_) {
    fresh.Speculate(session.speculation_->source->New(),
                    session.speculation_->options);
  }
  session = std::move(fresh);
  const auto root = roots_.find(space);
  if (root == roots_.end()) return 0;
  const Place place = Walk(root->second, tokens);
  // Only whole edges lead to a state.
  Node* node =
      place.depth < place.node->depth ? place.node->parent : place.node;
  const auto serves = [&](const Node& n) {
    return n.snapshot && (n.depth < tokens.size() || n.snapshot->has_logits());
  };
  while (node != nullptr && !serves(*node)) node = node->parent;
  const size_t known = node == nullptr ? 0 : node->depth;
  if (place.depth > known && place.depth < tokens.size()) {
    session.KeepAt(static_cast<int64_t>(place.depth));
  }
  if (node == nullptr) return 0;
  SequenceState& state = Insides::Of(session.state_);
  if (node->rows != nullptr) {
    state.CopyRows(*node->rows, static_cast<int64_t>(known));
  }
  state.Rollback(*node->snapshot->mark);
  session.tokens_.assign(tokens.begin(),
                         tokens.begin() + static_cast<ptrdiff_t>(known));
  node->used = ++clock_;
  for (const Node* up = node; up != nullptr; up = up->parent) {
    if (up->snapshot) session.snapshots_.Share(*up->snapshot);
  }
  session.snapshots_.Thin(static_cast<int64_t>(known));
  ++counts_.hits;
  counts_.saved_tokens += known;
  return static_cast<int64_t>(known);
}

void PrefixCache::Hold(Node* node, Snapshot snapshot, Rows rows) {
  if (!node->snapshot) {
    held_.push_back(node);
    ++counts_.inserted;
  }
  if (!node->snapshot || !node->snapshot->has_logits()) {
    node->snapshot = std::move(snapshot);
  }
  node->rows = std::move(rows);
  node->used = ++clock_;
}

void PrefixCache::Insert(const std::string& space, Session& session) {
  if (max_bytes_ == 0 || session.position() == 0) return;
  session.KeepHere();
  const SequenceState& state = Insides::Of(session.state_);
  const std::span<const int32_t> tokens = session.tokens();
  Node* root = Root(space);
  Rows rows;
  if (state.layout().grows()) {
    auto copy = std::make_shared<SequenceState>(state.shared_layout(),
                                                SequenceState::NoMemory{});
    copy->CopyRows(state, state.position);
    copy->position = state.position;
    rows = std::move(copy);
  }
  for (const Snapshot& snapshot : session.snapshots()) {
    const auto prefix = tokens.first(static_cast<size_t>(snapshot.position));
    Hold(NodeAt(root, prefix), snapshot, rows);
  }
  // States of other sessions on the way share the longer rows.
  for (Node* node = NodeAt(root, tokens); node != nullptr;
       node = node->parent) {
    if (node->snapshot) node->rows = rows;
  }
  Fit();
}

int64_t PrefixCache::CountBytes() const {
  int64_t bytes = 0;
  std::set<const SequenceState*> rows;
  for (const Node* node : held_) {
    bytes += BytesOf(*node->snapshot->mark);
    if (node->rows != nullptr && rows.insert(node->rows.get()).second) {
      bytes += node->rows->growing_bytes();
    }
  }
  for (const auto& node : nodes_) {
    bytes += static_cast<int64_t>(sizeof(Node) +
                                  node->edge.size() * sizeof(int32_t));
  }
  return bytes;
}

void PrefixCache::Delete(Node* node) {
  if (node->parent != nullptr) {
    node->parent->children.erase(node->edge.front());
  }
  const size_t index = node->index;
  std::swap(nodes_[index], nodes_.back());
  nodes_[index]->index = index;
  nodes_.pop_back();
}

// Removes what no longer leads to a state: leaves, and nodes with one child,
// whose edges become one.
void PrefixCache::Prune(Node* node) {
  while (node->parent != nullptr && !node->snapshot) {
    Node* parent = node->parent;
    if (node->children.empty()) {
      Delete(node);
      node = parent;
      continue;
    }
    if (node->children.size() > 1) return;
    Node* child = node->children.begin()->second;
    child->edge.insert(child->edge.begin(), node->edge.begin(),
                       node->edge.end());
    node->children.clear();
    Delete(node);
    child->parent = parent;
    parent->children[child->edge.front()] = child;
    return;
  }
}

void PrefixCache::Evict(Node* node) {
  node->snapshot.reset();
  node->rows.reset();
  std::erase(held_, node);
  ++counts_.evicted;
  Prune(node);
}

void PrefixCache::Fit() {
  bytes_ = CountBytes();
  while (bytes_ > max_bytes_ && !held_.empty()) {
    const auto cost = [&](const Node* node) {
      return static_cast<double>(BytesOf(*node->snapshot->mark)) *
             static_cast<double>(clock_ - node->used + 1);
    };
    Node* first = *std::max_element(
        held_.begin(), held_.end(),
        [&](const Node* a, const Node* b) { return cost(a) < cost(b); });
    Evict(first);
    bytes_ = CountBytes();
  }
}

void PrefixCache::Clear() {
  counts_.evicted += held_.size();
  held_.clear();
  roots_.clear();
  nodes_.clear();
  bytes_ = 0;
}

}  // namespace tarn
