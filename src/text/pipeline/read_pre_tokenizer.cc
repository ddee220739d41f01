// The pre_tokenizer of a tokenizer.json.
#include "text/pipeline/pipeline_json.h"
#include "text/split/patterns.h"

namespace tarn {
namespace {

using CutKind = PreTokenizerStep::Kind;
using Scanner = size_t (*)(std::string_view);
constexpr size_t kMaxDelimiter = 256;  // bytes

PreTokenizerStep ScanStep(Scanner first_piece_bytes) {
  return {CutKind::kScan, first_piece_bytes, {}};
}

// By a text: every behaviour but Contiguous.
PreTokenizerStep ReadSplitByText(const JsonNode& node) {
  PreTokenizerStep step{CutKind::kIsolated};
  step.text = ShortText(node["pattern"]["String"], kMaxDelimiter);
  if (node["invert"].flag(false)) node["invert"].Refuse("false");
  const JsonNode behavior = node["behavior"];
  struct Row {
    const char* word;
    CutKind kind;
  };
  for (const Row& row :
       {Row{"Isolated", CutKind::kIsolated}, Row{"Removed", CutKind::kRemoved},
        Row{"MergedWithPrevious", CutKind::kMergedPrevious},
        Row{"MergedWithNext", CutKind::kMergedNext}}) {
    if (behavior.text() != row.word) continue;
    step.kind = row.kind;
    return step;
  }
  behavior.Refuse(
      "'Isolated', 'Removed', 'MergedWithPrevious' or 'MergedWithNext'");
}

PreTokenizerStep ReadSplit(const JsonNode& node) {
  CheckKeys(node, {"type", "pattern", "behavior", "invert"});
  CheckKeys(node["pattern"], {"Regex", "String"});
  if (node["pattern"]["String"].value != nullptr) return ReadSplitByText(node);
  const JsonNode pattern = node["pattern"]["Regex"];
  const SplitPattern* found = FindSplitPattern(pattern.text());
  if (found == nullptr) pattern.Refuse(SplitPatternNames());
  // To remove what lies between matches that cover all removes nothing.
  const JsonNode behavior = node["behavior"];
  const bool invert = node["invert"].flag(false);
  if (behavior.text() == "Removed" && invert && found->covers_all) {
    return ScanStep(found->first_piece_bytes);
  }
  if (behavior.text() != "Isolated") {
    behavior.Refuse(found->covers_all ? "'Isolated', or 'Removed' with invert"
                                      : "'Isolated'");
  }
  if (invert) node["invert"].Refuse("false");
  return ScanStep(found->first_piece_bytes);
}

PreTokenizerStep ReadDigits(const JsonNode& node, bool of_bytes) {
  CheckKeys(node, {"type", "individual_digits"});
  const bool each = node["individual_digits"].flag(false);
  if (of_bytes) {
    return ScanStep(each ? DigitOfBytesPieceBytes : DigitRunOfBytesPieceBytes);
  }
  return ScanStep(each ? DigitPieceBytes : DigitRunPieceBytes);
}

PreTokenizerStep ReadPunctuation(const JsonNode& node) {
  CheckKeys(node, {"type", "behavior"});
  const JsonNode behavior = node["behavior"];
  if (behavior.value == nullptr || behavior.text() == "Isolated") {
    return ScanStep(PunctuationPieceBytes);
  }
  if (behavior.text() != "Contiguous") {
    behavior.Refuse("'Isolated' or 'Contiguous'");
  }
  return ScanStep(PunctuationRunPieceBytes);
}

void ReadMetaspace(const JsonNode& node, std::vector<PreTokenizerStep>& steps) {
  CheckKeys(node, {"type", "replacement", "str_rep", "add_prefix_space",
                   "prepend_scheme", "split"});
  PreTokenizerStep step{CutKind::kMetaspace};
  step.text = ShortText(node["replacement"], 4);  // one character
  step.scheme = ReadPrependScheme(node);
  steps.push_back(step);
  if (node["split"].flag(true)) {
    steps.push_back({CutKind::kMergedNext, nullptr, step.text});
  }
}

// After ByteLevel a text is a string of bytes in its alphabet.
void CheckAfterByteLevel(const JsonNode& node, const std::string& type) {
  if (type == "Digits") return;
  if (type == "Split" && node["pattern"].value != nullptr &&
      node["pattern"].value->is_object() &&
      node["pattern"]["Regex"].value != nullptr &&
      node["pattern"]["Regex"].text() == "[0-9][0-9][0-9]") {
    return;
  }
  node["type"].Refuse("after ByteLevel: Digits, or Split by [0-9][0-9][0-9]");
}

void ReadPreTokenizerStep(const JsonNode& node, PreTokenizers& out) {
  const std::string& type = node.type();
  if (out.byte_level) CheckAfterByteLevel(node, type);
  if (type == "ByteLevel") {
    CheckByteLevel(node, true);
    out.byte_level = true;
    if (node["use_regex"].flag(true)) {
      out.steps.push_back(ScanStep(Gpt2Split().first_piece_bytes));
    }
  } else if (type == "Split") {
    out.steps.push_back(ReadSplit(node));
  } else if (type == "Digits") {
    out.steps.push_back(ReadDigits(node, out.byte_level));
  } else if (type == "Punctuation") {
    out.steps.push_back(ReadPunctuation(node));
  } else if (type == "WhitespaceSplit") {
    CheckKeys(node, {"type"});
    out.steps.push_back({CutKind::kWithoutSpaces});
  } else if (type == "Metaspace") {
    ReadMetaspace(node, out.steps);
  } else {
    node["type"].Refuse(
        "ByteLevel, Split, Digits, Punctuation, WhitespaceSplit, Metaspace or "
        "Sequence");
  }
}

}  // namespace

PreTokenizers ReadPreTokenizers(const JsonNode& node) {
  PreTokenizers out;
  if (node.null()) return out;
  for (const JsonNode& step : StepsOf(node, "pretokenizers")) {
    ReadPreTokenizerStep(step, out);
  }
  return out;
}

}  // namespace tarn
