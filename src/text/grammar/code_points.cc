#include "text/grammar/code_points.h"

#include <algorithm>
#include <string>

#include "text/utf8.h"

namespace tarn::grammar {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

}  // namespace

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodePointRange& a, const CodePointRange& b) {
              return a.first < b.first;
            });
  const auto add = [&](uint32_t first, uint32_t last) {
    if (first > last) return;
    if (!ranges_.empty() && first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, last);
    } else {
      ranges_.push_back({first, last});
    }
  };
  for (const CodePointRange& range : ranges) {
    const uint32_t last = std::min(range.last, kMaxCodePoint);
    add(range.first, std::min(last, kFirstSurrogate - 1));
    add(std::max(range.first, kLastSurrogate + 1), last);
  }
}

CodePointSet CodePointSet::All() { return CodePointSet({{0, kMaxCodePoint}}); }

bool CodePointSet::Contains(uint32_t code_point) const {
  const auto after = std::upper_bound(
      ranges_.begin(), ranges_.end(), code_point,
      [](uint32_t c, const CodePointRange& range) { return c < range.first; });
  return after != ranges_.begin() && code_point <= (after - 1)->last;
}

CodePointSet CodePointSet::Complement() const {
  std::vector<CodePointRange> gaps;
  uint32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (next < range.first) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) gaps.push_back({next, kMaxCodePoint});
  return CodePointSet(std::move(gaps));
}

CodePointSet CodePointSet::Union(const CodePointSet& other) const {
  std::vector<CodePointRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::move(both));
}

CodePointSet CodePointSet::Intersection(const CodePointSet& other) const {
  std::vector<CodePointRange> shared;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const uint32_t first = std::max(a->first, b->first);
    const uint32_t last = std::min(a->last, b->last);
    if (first <= last) shared.push_back({first, last});
    ++(a->last < b->last ? a : b);
  }
  return CodePointSet(std::move(shared));
}

std::vector<ByteRanges> Utf8Ranges(CodePointRange range) {
  std::vector<ByteRanges> sequences;
  // Cuts off the largest head that is one sequence: of one length, and whole
  // blocks of 64, 64^2, 64^3 code points below the byte that varies.
  while (range.first <= range.last) {
    const uint32_t first = range.first;
    const uint32_t length_end = first < 0x80      ? 0x7F
                                : first < 0x800   ? 0x7FF
                                : first < 0x10000 ? 0xFFFF
                                                  : kMaxCodePoint;
    const uint32_t limit = std::min(range.last, length_end);
    const int bytes = first < 0x80      ? 1
                      : first < 0x800   ? 2
                      : first < 0x10000 ? 3
                                        : 4;
    // free: trailing bytes that take all their values.
    int free = 0;
    uint32_t block = 1;
    while (free + 1 < bytes && first % (block * 64) == 0 &&
           limit - first >= block * 64 - 1) {
      block *= 64;
      ++free;
    }
    // The byte before them varies as far as the limit and its own block allow;
    // the first byte of a sequence has no block above it.
    uint32_t end = limit - (limit - first + 1) % block;
    if (free + 1 < bytes) {
      const uint32_t above = block * 64;
      end = std::min(end, first - first % above + above - 1);
    }
    std::string low, high;
    AppendUtf8(first, low);
    AppendUtf8(end, high);
    ByteRanges sequence;
    sequence.count = bytes;
    for (int i = 0; i < bytes; ++i) {
      sequence.low[i] = static_cast<uint8_t>(low[i]);
      sequence.high[i] = static_cast<uint8_t>(high[i]);
    }
    sequences.push_back(sequence);
    if (end == kMaxCodePoint) break;
    range.first = end + 1;
  }
  return sequences;
}

}  // namespace tarn::grammar
