// Where a text begins and a target ends: the newline.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/generate/beam.h"
#include "text/tokenizer.h"

namespace tarn {

/// The token of "\n", from which a text without a prompt begins; nothing where
/// the tokenizer has no single token for it.
std::optional<int32_t> NewlineToken(const Tokenizer& tokenizer);

/// `options` for the targets of a sequence-to-sequence model: start and end are
/// the newline, and no row beyond the tokenizer's table, which stands for no
/// text, is a candidate. Throws FormatError when the tokenizer has no newline.
BeamOptions TargetBeam(const Tokenizer& tokenizer, BeamOptions options);

}  // namespace tarn
