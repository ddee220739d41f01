// Byte-pair merges of one piece of text (Sennrich et al. 2016, algorithm 1;
// over bytes: Radford et al. 2019).
#pragma once

#include <cstdint>
#include <vector>

namespace tarn {

/// `left` followed by `right` becomes `result`. A merge's rank is its place in
/// the list: the lowest rank that applies anywhere in a piece goes first, and
/// of its places the leftmost.
struct BpeMerge {
  int32_t left = 0, right = 0, result = 0;
  bool operator==(const BpeMerge&) const = default;
};

/// Immutable after construction; thread-safe.
class BpeMerger {
 public:
  BpeMerger() = default;
  /// Pairs must be distinct, all ids within [0, tokens), and a result's bytes
  /// its parts' together. O(merges log merges).
  BpeMerger(std::vector<BpeMerge> merges, int64_t tokens);

  const std::vector<BpeMerge>& merges() const { return merges_; }

  /// Merges `symbols` in place until no merge applies. Throws ArgumentError for
  /// 2^32 symbols and more. O(m log m) time for m symbols (short pieces:
  /// O(m^2), which is faster there) for any merges.
  void Merge(std::vector<int32_t>& symbols) const;

 private:
  // Rank of the pair, or -1. A search among the merges of `left`: no hash that
  // a hostile file could fill with collisions.
  int32_t RankOf(int32_t left, int32_t right) const;
  void MergeShort(std::vector<int32_t>& symbols) const;
  void MergeLong(std::vector<int32_t>& symbols) const;

  std::vector<BpeMerge> merges_;  // by rank
  // Merges of left token t: [starts_[t], starts_[t + 1]), by right token.
  std::vector<uint32_t> starts_;
  std::vector<int32_t> rights_, ranks_;
};

}  // namespace tarn
