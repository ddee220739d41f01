// Where an answer ends, as its template shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/template/chat_format.h"
#include "text/tokenizer.h"

namespace tarn {

struct TurnEnds {
  std::vector<int32_t> tokens;     // that end an answer
  std::vector<std::string> texts;  // that end it, of templates without such
};

/// What the template writes after an answer and before the next message: its
/// first special token, or else that text without white space at its end. None
/// where the template shows neither. Also the token of eos_token. O(template).
TurnEnds TurnEndsOf(const ChatFormat& format, const Tokenizer& tokenizer,
                    const RenderOptions& options = {});

/// Whether the token is one of those that are found before a text is cut.
bool IsAddedToken(const Tokenizer& tokenizer, int32_t token);

}  // namespace tarn
