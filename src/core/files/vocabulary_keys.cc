#include "core/files/vocabulary_keys.h"

#include <algorithm>
#include <iterator>

namespace tarn {
namespace {

// llama-vocab.cpp, special_eog_ids.
constexpr std::string_view kTurnEnds[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

}  // namespace

bool EndsTurn(std::string_view token) {
  if (token.size() < 4 ||
      (token[0] != '<' && token[0] != '[' && token[0] != '_')) {
    return false;
  }
  return std::find(std::begin(kTurnEnds), std::end(kTurnEnds), token) !=
         std::end(kTurnEnds);
}

}  // namespace tarn
