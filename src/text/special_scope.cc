#include "text/special_scope.h"

#include <algorithm>

namespace tarn {
namespace {

// The first range that ends after `at`.
auto EndingAfter(std::span<const ByteRange> ranges, size_t at) {
  return std::upper_bound(
      ranges.begin(), ranges.end(), at,
      [](size_t wanted, const ByteRange& range) { return wanted < range.end; });
}

}  // namespace

size_t SpecialScope::Room(size_t at, size_t text_bytes) const {
  const auto next = EndingAfter(data, at);
  if (next == data.end()) return text_bytes - at;
  return next->begin <= at ? 0 : next->begin - at;
}

size_t SpecialScope::DataEnd(size_t at) const {
  const auto range = EndingAfter(data, at);
  return range == data.end() ? at : range->end;
}

std::vector<ByteRange> RangesWithin(std::span<const ByteRange> ranges,
                                    size_t begin, size_t end) {
  std::vector<ByteRange> within;
  for (auto range = EndingAfter(ranges, begin);
       range != ranges.end() && range->begin < end; ++range) {
    within.push_back({std::max(range->begin, begin) - begin,
                      std::min(range->end, end) - begin});
  }
  return within;
}

std::vector<ByteRange> RangesAfter(
    std::string_view text, std::span<const ByteRange> ranges,
    std::string_view normalised,
    const std::function<std::string(std::string_view piece, bool first)>&
        normalise) {
  if (text == normalised) return {ranges.begin(), ranges.end()};
  if (ranges.empty()) return {};
  std::vector<ByteRange> after;
  std::string all;
  const auto append = [&](size_t begin, size_t end) {
    if (begin < end) all += normalise(text.substr(begin, end - begin), !begin);
  };
  size_t done = 0;
  for (const ByteRange& range : ranges) {
    append(done, range.begin);
    const size_t begin = all.size();
    append(range.begin, range.end);
    if (begin < all.size()) after.push_back({begin, all.size()});
    done = range.end;
  }
  append(done, text.size());
  if (all == normalised) return after;
  // Characters of two pieces became one: no place divides what is data.
  if (normalised.empty()) return {};
  return {{0, normalised.size()}};
}

}  // namespace tarn
