#include "text/split/patterns.h"

#include "text/split/cl100k.h"
#include "text/split/deepseek.h"
#include "text/split/gpt2.h"
#include "text/split/o200k.h"

namespace tarn {
namespace {

constexpr SplitPattern kSplitPatterns[] = {
    {"GPT-2's pattern", kGpt2Pattern, Gpt2PieceBytes},
    {"cl100k's", kCl100kPattern, Cl100kPieceBytes},
    {"cl100k's newer spelling", kNewCl100kPattern, NewCl100kPieceBytes},
    {"Qwen 2's", kQwen2Pattern, Qwen2PieceBytes},
    {"Qwen 3.5's", kQwen35Pattern, Qwen35PieceBytes},
    {"o200k's", kO200kPattern, O200kPieceBytes},
    {"Tekken's", kTekkenPattern, TekkenPieceBytes},
    {"Kimi K2's", kKimiK2Pattern, KimiK2PieceBytes},
    {"DeepSeek-V3's numbers", kThreeNumbersPattern, ThreeNumbersPieceBytes,
     false},
    {"DeepSeek-V3's Han and Kana", kHanKanaPattern, HanKanaPieceBytes, false},
    {"DeepSeek-V3's words", kDeepSeekWordsPattern, DeepSeekWordsPieceBytes,
     false},
    {"Falcon's digits", kThreeDigitsPattern, ThreeDigitsPieceBytes, false},
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
