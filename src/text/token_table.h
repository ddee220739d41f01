// The vocabulary and the merges of a tokenizer.json. Included by .cc files
// only, as core/json.h is.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe_merger.h"
#include "text/json_node.h"

namespace tarn {

/// Collects (id, token) from the vocabulary and the added tokens, in any order.
/// All functions throw FormatError with the path.
class TokenTable {
 public:
  /// How the table holds the tokens of a vocabulary.
  enum class Form { kBytes, kAsWritten };  // kBytes: GPT-2's alphabet undone
  explicit TokenTable(Form form) : form_(form) {}

  /// vocab: an object of token: id. added: raw contents of the added tokens,
  /// which are in no alphabet.
  void AddVocabulary(const JsonNode& vocab,
                     const std::unordered_map<std::string, size_t>& added);
  void Set(const std::string& path, int32_t id, std::string token);
  /// The id of a token as the file writes it.
  int32_t Find(const std::string& path, const std::string& token) const;
  const int32_t* FindOrNull(const std::string& token) const;
  /// The tokens by id, which must have no gap.
  std::vector<std::string> Take(const std::string& path);
  /// The same with empty tokens for ids that no token has: one id in a hundred
  /// at most, so that a file cannot make a large table with a few ids.
  std::vector<std::string> TakeWithGaps(const std::string& path);

 private:
  const Form form_;
  std::vector<std::string> tokens_;
  std::vector<bool> known_;
  std::unordered_map<std::string, int32_t> ids_;
};

/// model.merges: each "a b" or ["a", "b"], by rank.
std::vector<BpeMerge> ReadMerges(const JsonNode& node, const TokenTable& table);

/// The entries of added_tokens; absent: none.
std::vector<AddedToken> ReadAdded(const JsonNode& node);
/// Sets `in_vocabulary` of each and adds those that are not to the table.
void PlaceAdded(TokenTable& table, std::vector<AddedToken>& added);

/// "a b": exactly one space, as no token of the byte alphabet holds any.
BpeMerge MergeOfText(const TokenTable& table, const std::string& path,
                     const std::string& text);

}  // namespace tarn
