// The decoder and the post_processor of a tokenizer.json.
#include "core/text.h"
#include "text/pipeline/pipeline_json.h"

namespace tarn {
namespace {

constexpr size_t kMaxDecodedText = 256;  // bytes
constexpr int64_t kMaxStripped = 1 << 16;
constexpr size_t kMaxEndTokens = 64;

DecoderStep ReadDecoderStep(const JsonNode& node) {
  using enum DecoderStep::Kind;
  const std::string& type = node.type();
  if (type == "ByteLevel") {
    CheckByteLevel(node, false);
    return {kByteLevel, {}, {}};
  }
  if (type == "ByteFallback" || type == "Fuse") {
    CheckKeys(node, {"type"});
    return {type == "Fuse" ? kFuse : kByteFallback, {}, {}};
  }
  if (type == "Replace") {
    CheckKeys(node, {"type", "pattern", "content"});
    CheckKeys(node["pattern"], {"String"});
    DecoderStep step{kReplace, {}, {}};
    step.pattern = ShortText(node["pattern"]["String"], kMaxDecodedText);
    step.content = node["content"].text();
    if (step.content.size() > step.pattern.size() + kMaxDecodedText) {
      node["content"].Refuse(StrCat("at most ", kMaxDecodedText, " bytes"));
    }
    return step;
  }
  if (type == "Strip") {
    CheckKeys(node, {"type", "content", "start", "stop"});
    return {kStrip,
            {},
            ShortText(node["content"], 4),
            node["start"].whole(0, kMaxStripped),
            node["stop"].whole(0, kMaxStripped)};
  }
  if (type == "Metaspace") {
    CheckKeys(node, {"type", "replacement", "str_rep", "add_prefix_space",
                     "prepend_scheme", "split"});
    node["split"].flag(true);
    const bool prepended = ReadPrependScheme(node) != PrependScheme::kNever;
    return {kMetaspace, ShortText(node["replacement"], 4), {}, prepended, 0};
  }
  node["type"].Refuse(
      "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace or Sequence");
}

// Appends the ids that "special_tokens" gives for a piece of a template.
void AppendEndTokens(const JsonNode& table, const JsonNode& piece,
                     int64_t tokens, std::vector<int32_t>& ids) {
  CheckKeys(piece, {"id", "type_id"});
  if (table.value == nullptr || !table.value->is_object()) {
    table.Refuse("an object");
  }
  const JsonNode entry = table[piece["id"].text().c_str()];
  CheckKeys(entry, {"id", "ids", "tokens"});
  const JsonNode list = entry["ids"];
  for (size_t i = 0; i < list.array(); ++i) {
    ids.push_back(static_cast<int32_t>(list.at(i).whole(0, tokens - 1)));
  }
  if (ids.size() > kMaxEndTokens) {
    list.Refuse(StrCat("at most ", kMaxEndTokens, " tokens at an end"));
  }
}

// "single": tokens, the text once, tokens. Pairs of texts are not encoded.
TextEnds ReadTemplate(const JsonNode& node, int64_t tokens) {
  CheckKeys(node, {"type", "single", "pair", "special_tokens"});
  const JsonNode single = node["single"];
  TextEnds ends;
  bool text = false;
  for (size_t i = 0; i < single.array(); ++i) {
    const JsonNode piece = single.at(i);
    CheckKeys(piece, {"SpecialToken", "Sequence"});
    const JsonNode sequence = piece["Sequence"];
    if (sequence.value == nullptr) {
      AppendEndTokens(node["special_tokens"], piece["SpecialToken"], tokens,
                      text ? ends.after : ends.before);
      continue;
    }
    CheckKeys(sequence, {"id", "type_id"});
    if (text || sequence["id"].text() != "A") sequence.Refuse("$A, once");
    text = true;
  }
  if (!text) single.Refuse("$A");
  return ends;
}

}  // namespace

std::vector<DecoderStep> ReadDecoders(const JsonNode& node) {
  std::vector<DecoderStep> steps;
  for (const JsonNode& step : StepsOf(node, "decoders")) {
    steps.push_back(ReadDecoderStep(step));
  }
  return steps;
}

TextEnds ReadPostProcessor(const JsonNode& node, int64_t tokens) {
  TextEnds ends;
  if (node.null()) return ends;
  bool found = false;
  for (const JsonNode& step : StepsOf(node, "processors")) {
    if (step.type() == "ByteLevel") {
      CheckByteLevel(step, false);
    } else if (step.type() != "TemplateProcessing") {
      step["type"].Refuse("ByteLevel, TemplateProcessing or Sequence");
    } else {
      if (found) step.Refuse("one TemplateProcessing");
      ends = ReadTemplate(step, tokens);
      found = true;
    }
  }
  return ends;
}

}  // namespace tarn
