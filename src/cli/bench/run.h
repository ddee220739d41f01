// What `tarn bench` measures: prefill, generation, many sessions at once, and
// what a state costs to copy. No tokenizer and no sampler anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/model/model.h"

namespace tarn::cli {

/// One test: `prompt` tokens consumed in one call, or `generate` tokens one
/// after the other by each of `sessions` sequences in step; one of the two is
/// 0. `depth` tokens are consumed before, untimed.
struct BenchTest {
  int64_t prompt = 0, generate = 0, depth = 0, sessions = 1;
};

struct BenchTimes {
  std::vector<int64_t> run_ns;  // one a repetition
  double median_step_ns = 0;    // over all steps of all repetitions
};

/// How often a test runs: `warm_ups` times unmeasured, then `repetitions`.
struct BenchRuns {
  int64_t warm_ups = 1, repetitions = 5;
};

/// Lets `state` consume tokens of a fixed seed up to position `depth`, unless
/// it is there already; it continues from where an earlier call ended.
void AdvanceTo(const Model& model, int64_t depth, State& state);

/// Runs a test, each time from a fresh copy of `start`, a state at the test's
/// depth. Tokens come from a fixed seed. `stopped` is polled between steps; a
/// repetition it cuts short does not count. Prompts compute the logits of their
/// last token, steps those of every token.
BenchTimes RunBenchTest(const Model& model, const BenchTest& test,
                        const State& start, const BenchRuns& runs,
                        const std::function<bool()>& stopped);

/// Bytes of weights and state that one step of the test moves, on average:
/// every weight once, a linear state read and written, a cache read up to the
/// middle of the generated tokens.
int64_t BytesPerStep(const Model& model, const BenchTest& test);

/// Microseconds to fork a state, and what the first step of a fork takes more
/// than another, since it copies the state: medians over `repetitions`.
struct StateTimes {
  int64_t bytes = 0;  // of one session's recurrence
  double fork_us = 0, copy_us = 0;
};
StateTimes MeasureState(const Model& model, const State& start,
                        int64_t repetitions);

}  // namespace tarn::cli
