// BPE vocabularies as files: Hugging Face's tokenizer.json and GPT-2's older
// pair. Included by .cc files only, as core/json.h is.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "text/bpe_tokenizer.h"

namespace tarn {

/// Whether a tokenizer.json has the shape that a BpeDefinition expresses: a BPE
/// (or no type) with every id from 0 on; normalizer null or NFC; pre-tokenizer
/// ByteLevel, alone or after one isolating Split by a Regex; post-processor
/// null or ByteLevel. Looks at no detail beyond that. O(added tokens).
bool IsPlainBpe(const nlohmann::json& root);

/// Reads the object of a tokenizer.json of that shape. Anything that is not
/// supported is a FormatError that names its JSON path, never ignored.
Result<BpeDefinition> BpeFromJson(const nlohmann::json& root);

/// The same form, byte for byte stable. Merges are written as pairs, which no
/// token can make ambiguous.
std::string BpeToJson(const BpeDefinition& definition);

/// An entry of added_tokens.
nlohmann::ordered_json AddedTokenJson(const AddedToken& token);

/// GPT-2's encoder.json (token -> id) and vocab.bpe (merges, one a line after
/// an optional "#version" line). "<|endoftext|>", if there, is special.
/// FormatError names the file and line.
Result<BpeDefinition> BpeFromPair(const nlohmann::json& encoder,
                                  std::string_view merges);

}  // namespace tarn
