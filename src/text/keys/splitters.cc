#include "text/keys/splitters.h"

#include <algorithm>

#include "text/pipeline/pipeline_json.h"
#include "text/split/cl100k.h"
#include "text/split/deepseek.h"
#include "text/split/gpt2.h"
#include "text/split/o200k.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

Json ByteLevelStep(bool cuts) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", cuts}};
}

Json DigitStep(bool each) {
  return {{"type", "Digits"}, {"individual_digits", each}};
}

Json PatternStep(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", std::string(pattern)}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json StepList(Json steps) {
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

Json PatternSteps(std::string_view pattern) {
  return StepList({PatternStep(pattern), ByteLevelStep(false)});
}

std::vector<NamedSplitter> MakeSplitters() {
  const Json gpt2 = ByteLevelStep(true);
  const Json cl100k = PatternSteps(kCl100kPattern);
  const Json digits = StepList({DigitStep(true), gpt2});
  const Json falcon =
      StepList({{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                gpt2,
                DigitStep(false),
                PatternStep(kThreeDigitsPattern)});
  const Json deepseek =
      StepList({PatternStep(kThreeNumbersPattern), PatternStep(kHanKanaPattern),
                PatternStep(kDeepSeekWordsPattern), ByteLevelStep(false)});
  return {
      {{"gpt-2", "olmo", "mpt", "phi-2", "jais", "gigachat", "a.x-4.0",
        "mellum", "modern-bert", "trillion", "granite-docling", "exaone4",
        "jina-es", "jina-de", "jina-v2-es", "jina-v2-de"},
       gpt2},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2",
        "pixtral", "midm-2.0", "jina-v5-nano"},
       cl100k,
       true,
       true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe"}, cl100k},
      {{"glm4", "glm5"}, cl100k, true},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "kormo",
        "f2llmv2", "solar-open", "grok-2"},
       PatternSteps(kQwen2Pattern)},
      {{"qwen35"}, PatternSteps(kQwen35Pattern)},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone",
        "minerva-7b", "mellum2"},
       digits},
      {{"falcon"}, falcon},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"},
       PatternSteps(kO200kPattern)},
      {{"tekken"}, PatternSteps(kTekkenPattern), true, true},
      {{"kimi-k2"}, PatternSteps(kKimiK2Pattern)},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, deepseek},
  };
}

bool SameStep(const PreTokenizerStep& a, const PreTokenizerStep& b) {
  return a.kind == b.kind && a.first_piece_bytes == b.first_piece_bytes &&
         a.text == b.text && a.scheme == b.scheme;
}

}  // namespace

const std::vector<NamedSplitter>& NamedSplitters() {
  static const std::vector<NamedSplitter> all = MakeSplitters();
  return all;
}

const NamedSplitter* FindSplitter(std::string_view name) {
  for (const NamedSplitter& row : NamedSplitters()) {
    for (const char* known : row.names) {
      if (known == name) return &row;
    }
  }
  return nullptr;
}

const NamedSplitter* SplitterOf(const std::vector<PreTokenizerStep>& steps,
                                bool ignore_merges) {
  for (const NamedSplitter& row : NamedSplitters()) {
    const PreTokenizers cuts = ReadPreTokenizers({&row.pre_tokenizer, ""});
    if (row.ignore_merges == ignore_merges &&
        std::equal(steps.begin(), steps.end(), cuts.steps.begin(),
                   cuts.steps.end(), SameStep)) {
      return &row;
    }
  }
  return nullptr;
}

std::string SplitterNames() {
  std::string names;
  for (const NamedSplitter& row : NamedSplitters()) {
    names += (names.empty() ? "" : ", ") + std::string(row.names.front());
  }
  return names;
}

}  // namespace tarn
