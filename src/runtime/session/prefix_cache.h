// States after beginnings that several sequences share: a prompt that was read
// once is not read again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/session/session.h"

namespace tarn {

/// What a cache has done since it was made.
struct PrefixCacheCounts {
  uint64_t lookups = 0, hits = 0;
  uint64_t asked_tokens = 0, saved_tokens = 0;  // of lookups
  uint64_t inserted = 0, evicted = 0;           // states
};

/// A radix tree over token ids: a node may hold the state after the tokens that
/// lead to it. There is no least length and no block: a state stands at an
/// exact token. Spaces are apart: what one has read is not found in another,
/// since the time that a prompt takes tells whether it was known. Memory is
/// bounded; what goes first is the state with the largest product of bytes and
/// time since its last use. For one model. One thread at a time.
class PrefixCache {
 public:
  /// max_bytes: 0 keeps nothing. Throws ArgumentError below 0.
  explicit PrefixCache(int64_t max_bytes);
  PrefixCache(PrefixCache&&) noexcept;
  PrefixCache& operator=(PrefixCache&&) noexcept;
  ~PrefixCache();

  /// Brings a session, whose past is dropped, to the longest beginning of
  /// `tokens` that is known, and returns its length: 0 where none is. All of
  /// them only with logits, so that a text can continue. The session will keep
  /// a state where `tokens` part from what is known. O(tokens + state).
  int64_t Restore(const std::string& space, std::span<const int32_t> tokens,
                  Session& session);
  /// Adds all states that a session keeps, and its present one. O(tokens +
  /// state); where states grow with the tokens, O(rows) for a copy of them.
  void Insert(const std::string& space, Session& session);
  void Clear();

  int64_t bytes() const { return bytes_; }  // of states, rows and tokens
  int64_t states() const { return static_cast<int64_t>(held_.size()); }
  const PrefixCacheCounts& counts() const { return counts_; }

 private:
  struct Node;
  /// Rows of growing tensors, for all states on one path.
  using Rows = std::shared_ptr<const SequenceState>;

  struct Place {
    Node* node;        // the last one on the way, whose edge may go on
    size_t depth = 0;  // tokens that agree, up to within the edge
  };
  Node* Root(const std::string& space);
  Place Walk(Node* root, std::span<const int32_t> tokens) const;
  Node* NodeAt(Node* root, std::span<const int32_t> tokens);
  Node* NewNode(Node* parent, std::vector<int32_t> edge);
  void Split(Node* node, size_t at);
  void Hold(Node* node, Snapshot snapshot, Rows rows);
  void Evict(Node* node);
  void Prune(Node* node);
  void Delete(Node* node);
  void Fit();
  int64_t CountBytes() const;

  int64_t max_bytes_, bytes_ = 0;
  std::map<std::string, Node*> roots_;
  std::vector<std::unique_ptr<Node>> nodes_;  // in no order
  std::vector<Node*> held_;                   // those with a state
  uint64_t clock_ = 0;                        // of uses
  PrefixCacheCounts counts_;
};

}  // namespace tarn
