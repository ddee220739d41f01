// `tarn eval --by-position`: a language model on one stream of any length, with
// the quality of prediction and the cost of a token by position.
#pragma once

#include <cstdint>
#include <string>

#include "cli/cli.h"
#include "cli/console/input.h"

namespace tarn::cli {

struct PositionFlags {
  std::string file;
  int64_t max_tokens = 0;  // 0: the whole text
  int64_t near = 1000;     // position of the early state that is kept
  int64_t steps = 10'000;  // timed from either state; 0: none
  bool json = false;
  InputForm form = InputForm::kPlain;
};

/// Reads the text as one sequence without resets, in blocks (prefill), and
/// prints bits a token in buckets of position. A copy of the state at position
/// `near` is kept; after the last token it and the last state are stepped in
/// turn (CompareSteps). Resident memory and state bytes are reported at both
/// positions. Returns the exit code. Throws ExitError for a text of fewer than
/// two tokens, NumericError for log-probabilities that are not finite.
int EvalByPosition(const LoadedModel& opened, const PositionFlags& flags);

}  // namespace tarn::cli
