// What the parts of a tokenizer.json have in common, and its normalizer.
#include "core/text.h"
#include "text/pipeline/pipeline_json.h"

namespace tarn {
namespace {

constexpr size_t kMaxSteps = 16;
constexpr size_t kMaxReplacement = 256;  // bytes
constexpr double kMaxGrowth = 64;

NormalizerStep ReadReplace(const JsonNode& node) {
  CheckKeys(node, {"type", "pattern", "content"});
  // Expressions would need an engine.
  CheckKeys(node["pattern"], {"String"});
  NormalizerStep step{NormalizerStep::Kind::kReplace, {}, {}};
  step.pattern = ShortText(node["pattern"]["String"], kMaxReplacement);
  step.content = node["content"].text();
  if (step.content.size() > kMaxReplacement)
    ShortText(node["content"], kMaxReplacement);
  return step;
}

NormalizerStep ReadNormalizerStep(const JsonNode& node) {
  using enum NormalizerStep::Kind;
  const std::string& type = node.type();
  if (type == "Replace") return ReadReplace(node);
  if (type == "Prepend") {
    CheckKeys(node, {"type", "prepend"});
    return {kPrepend, {}, ShortText(node["prepend"], kMaxReplacement)};
  }
  if (type == "Strip") {
    CheckKeys(node, {"type", "strip_left", "strip_right"});
    return {kStrip,
            {},
            {},
            node["strip_left"].flag(true),
            node["strip_right"].flag(true)};
  }
  struct Row {
    const char* type;
    NormalizerStep::Kind kind;
  };
  for (const Row& row : {Row{"NFC", kNfc}, Row{"NFD", kNfd}, Row{"NFKC", kNfkc},
                         Row{"NFKD", kNfkd}, Row{"Lowercase", kLowercase}}) {
    if (type != row.type) continue;
    CheckKeys(node, {"type"});
    return {row.kind, {}, {}};
  }
  node["type"].Refuse(
      "NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend, Strip or Sequence");
}

}  // namespace

const std::string& ShortText(const JsonNode& node, size_t most) {
  const std::string& text = node.text();
  if (text.empty() || text.size() > most) {
    node.Refuse(StrCat("1 to ", most, " bytes of text"));
  }
  return text;
}

std::vector<JsonNode> StepsOf(const JsonNode& node, const char* key) {
  if (node.type() != "Sequence") return {node};
  CheckKeys(node, {"type", key});
  const JsonNode list = node[key];
  if (list.array() > kMaxSteps) list.Refuse(StrCat("at most ", kMaxSteps));
  std::vector<JsonNode> steps;
  for (size_t i = 0; i < list.array(); ++i) steps.push_back(list.at(i));
  return steps;
}

std::vector<NormalizerStep> ReadNormalizers(const JsonNode& node) {
  std::vector<NormalizerStep> steps;
  if (node.null()) return steps;
  for (const JsonNode& step : StepsOf(node, "normalizers")) {
    steps.push_back(ReadNormalizerStep(step));
  }
  if (ReplacementGrowth(steps) > kMaxGrowth) {
    node.Refuse(StrCat("replacements that make a text at most ", kMaxGrowth,
                       " times as long"));
  }
  return steps;
}

// add_prefix_space would put a space where the text has none.
void CheckByteLevel(const JsonNode& node, bool prefix_matters) {
  CheckType(node, "ByteLevel");
  CheckKeys(node, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  const bool prefix = node["add_prefix_space"].flag(true);
  if (prefix_matters && prefix) node["add_prefix_space"].Refuse("false");
  node["trim_offsets"].flag(true);  // offsets are not kept here
  node["use_regex"].flag(true);
}

PrependScheme ReadPrependScheme(const JsonNode& node) {
  const JsonNode scheme = node["prepend_scheme"];
  const bool prefix = node["add_prefix_space"].flag(true);
  if (scheme.value == nullptr) {
    return prefix ? PrependScheme::kAlways : PrependScheme::kNever;
  }
  const std::string& word = scheme.text();
  if (!prefix && word != "never") {
    node["add_prefix_space"].Refuse("true, as prepend_scheme says");
  }
  if (word == "always") return PrependScheme::kAlways;
  if (word == "first") return PrependScheme::kFirst;
  if (word != "never") scheme.Refuse("'always', 'first' or 'never'");
  return PrependScheme::kNever;
}

}  // namespace tarn
