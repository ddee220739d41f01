// What a session holds to read guesses ahead of its draws. Its own.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/session/draft_length.h"
#include "runtime/session/session.h"

namespace tarn {

struct Speculation {
  Speculation(std::unique_ptr<DraftSource> guesses,
              const SpeculationOptions& wanted)
      : options(wanted), source(std::move(guesses)), length(wanted.most) {}

  SpeculationOptions options;
  std::unique_ptr<DraftSource> source;
  DraftLength length;
  SpeculationCounts counts;

  // A job with a guess was handed out; it has run, and draws compare.
  bool handed_out = false, ahead = false;
  bool has_guessed = false;
  std::vector<int32_t> tokens;  // [pending, then guessed]
  std::vector<float> rows;      // [tokens, n_outputs]
  std::vector<float> hidden;    // [tokens of a job, d_model], if they are read
  size_t pending = 0, guessed = 0, confirmed = 0;
  int kind = 0;      // of the guess
  double ms = 0;     // that making it took
  int64_t from = 0;  // position before all of them
  StateMark before;  // the state there
};

}  // namespace tarn
