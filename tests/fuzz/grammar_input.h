// What holds of every grammar, whatever its notation.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_masks.h"

namespace tarn::fuzz {

/// A mask allows exactly the bytes that may follow.
inline void CheckMask(const TokenMasks& masks, const GrammarState& state) {
  std::vector<uint32_t> mask(static_cast<size_t>(masks.mask_words()));
  masks.Fill(state, mask);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    GrammarState next = state;
    const char one = static_cast<char>(byte);
    const bool allowed = (mask[byte / 32] >> (byte % 32) & 1) != 0;
    Require(next.Push({&one, 1}) == allowed, "a mask of other bytes");
  }
}

inline void UseGrammar(const Result<Grammar>& read, std::string_view text) {
  if (!read.ok()) return CheckRefusal(read.error());
  const Grammar& grammar = read.value();
  Require(grammar.size() <= kMaxGrammarNodes, "more nodes than there may be");
  static const TokenMasks vocabulary(Grammar::AnyJson(), Tokenizer::Byte(), {});
  const TokenMasks masks = vocabulary.With(grammar);
  GrammarState state(grammar);
  constexpr size_t kMasks = 2;
  for (size_t i = 0; i < std::min<size_t>(text.size(), 256); ++i) {
    if (i < kMasks) CheckMask(masks, state);
    if (!state.Push(text.substr(i, 1))) break;
  }
  state.complete();
  const Result<GrammarState> again = GrammarState::Load(grammar, state.Save());
  Require(again.ok(), "a state that cannot be read again");
  Require(again.value() == state, "another state is read again");
  const Result<GrammarState> any = GrammarState::Load(grammar, text);
  if (!any.ok()) CheckRefusal(any.error());
  ++Accepted();
}

}  // namespace tarn::fuzz
