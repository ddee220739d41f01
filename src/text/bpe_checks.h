// What must hold between the tables of a tokenizer.json.
#pragma once

#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe_merger.h"

namespace tarn {

// Each throws FormatError that names the place in tokenizer.json.

/// tokens: id -> content. Contents and ids are distinct and agree with the
/// table; lengths are bounded, so that finding them takes linear time.
void CheckAddedTokens(const std::vector<AddedToken>& added,
                      const std::vector<std::string>& tokens);

/// Pairs are distinct, each result is both parts together, and no id is
/// `reserved`. O(merges log merges).
void CheckMerges(const std::vector<BpeMerge>& merges,
                 const std::vector<std::string>& tokens,
                 const std::vector<bool>& reserved);

/// Sorted by content; of equal contents, which normalising may make, the first
/// one listed.
std::vector<AddedToken> FirstOfEachContent(std::vector<AddedToken> tokens);

}  // namespace tarn
