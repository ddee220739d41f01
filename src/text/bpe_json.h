// BPE vocabularies as files: Hugging Face's tokenizer.json and GPT-2's older
// pair. Included by .cc files only, as core/json.h is.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "text/bpe_tokenizer.h"

namespace tarn {

/// Reads the object of a tokenizer.json. What it may hold: model BPE without
/// dropout, affixes or byte fallback; normalizer null or NFC; pre-tokenizer
/// ByteLevel without a prefix space, alone or after a Split by GPT-2's pattern;
/// post-processor null or ByteLevel; decoder ByteLevel. Anything else is a
/// FormatError that names its JSON path, never ignored.
Result<BpeDefinition> BpeFromJson(const nlohmann::json& root);

/// The same form, byte for byte stable. Merges are written as pairs, which no
/// token can make ambiguous.
std::string BpeToJson(const BpeDefinition& definition);

/// GPT-2's encoder.json (token -> id) and vocab.bpe (merges, one a line after
/// an optional "#version" line). "<|endoftext|>", if there, is special.
/// FormatError names the file and line.
Result<BpeDefinition> BpeFromPair(const nlohmann::json& encoder,
                                  std::string_view merges);

}  // namespace tarn
