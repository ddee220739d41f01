#include "text/split/patterns.h"

#include "text/split/gpt2.h"

namespace tarn {
namespace {

constexpr SplitPattern kSplitPatterns[] = {
    {"GPT-2's pattern", kGpt2Pattern, Gpt2PieceBytes},
};

}  // namespace

std::span<const SplitPattern> SplitPatterns() { return kSplitPatterns; }

const SplitPattern* FindSplitPattern(std::string_view pattern) {
  for (const SplitPattern& row : kSplitPatterns) {
    if (row.pattern == pattern) return &row;
  }
  return nullptr;
}

std::string SplitPatternNames() {
  std::string names;
  for (const SplitPattern& row : kSplitPatterns) {
    names += (names.empty() ? "" : " or ") + std::string(row.name);
  }
  return names;
}

}  // namespace tarn
