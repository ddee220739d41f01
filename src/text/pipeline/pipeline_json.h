// Hugging Face's tokenizer.json to a PipelineDefinition and back. Included by
// .cc files only, as core/json.h is.
#pragma once

#include <string>
#include <vector>

#include "text/json_node.h"
#include "text/pipeline/definition.h"
#include "text/tokenizer_config.h"

namespace tarn {

/// Reads the object of a tokenizer.json. Anything unsupported is a FormatError
/// that names its JSON path, never ignored. docs/model-format.md lists what is
/// supported.
Result<PipelineDefinition> PipelineFromJson(const nlohmann::json& root);

/// The same form, byte for byte stable.
std::string PipelineToJson(const PipelineDefinition& definition);

// The parts, each in its file; all throw FormatError.

/// "normalizer"; null: no steps.
std::vector<NormalizerStep> ReadNormalizers(const JsonNode& node);

struct PreTokenizers {
  std::vector<PreTokenizerStep> steps;
  bool byte_level = false;  // pieces are byte strings from some step on
};
/// "pre_tokenizer"; null: the text is one piece.
PreTokenizers ReadPreTokenizers(const JsonNode& node);

/// "decoder".
std::vector<DecoderStep> ReadDecoders(const JsonNode& node);

struct TextEnds {
  std::vector<int32_t> before, after;
};
/// "post_processor"; null: nothing. tokens: number of ids.
TextEnds ReadPostProcessor(const JsonNode& node, int64_t tokens);
/// A post_processor that adds them; null for none.
nlohmann::json TemplateOfEnds(const TextEnds& ends);

/// Makes the template of `root`, a tokenizer.json, add what the config says.
/// Throws FormatError where the config names a token that is not there.
void ApplyTokenizerConfig(const TokenizerConfig& config, nlohmann::json& root);

/// A ByteLevel step without a prefix space where that matters.
void CheckByteLevel(const JsonNode& node, bool prefix_matters);
/// A text of 1 to `most` bytes.
const std::string& ShortText(const JsonNode& node, size_t most);
/// "prepend_scheme" of a Metaspace, or the older "add_prefix_space".
PrependScheme ReadPrependScheme(const JsonNode& node);
/// Steps of a Sequence under `key` (at most 16), or the node itself.
std::vector<JsonNode> StepsOf(const JsonNode& node, const char* key);

}  // namespace tarn
