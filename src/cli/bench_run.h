// What `tarn bench` measures: prefill, generation, many sessions at once, and
// what a state costs to copy. No tokenizer and no sampler anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/model.h"

namespace tarn::cli {

/// One test: `prompt` tokens consumed in one call, or `generate` tokens one
/// after the other by each of `sessions` sequences in step; one of the two is
/// 0. `depth` tokens come before, outside the clock.
struct BenchTest {
  int64_t prompt = 0, generate = 0, depth = 0, sessions = 1;
};

struct BenchTimes {
  std::vector<int64_t> run_ns;  // one a repetition
  double median_step_ns = 0;    // over all steps of all repetitions
};

/// Runs a test once unmeasured and then `repetitions` times, each time from a
/// fresh copy of the same state. Tokens come from a fixed seed. `stopped` is
/// asked between steps; a repetition it cuts short does not count. Prompts ask
/// for the logits of their last token, steps for those of every token.
BenchTimes RunBenchTest(const Model& model, const BenchTest& test,
                        int64_t repetitions,
                        const std::function<bool()>& stopped);

/// Bytes of weights and state that pass by in one step of the test, on average:
/// every weight once, a linear state read and written, a cache read up to the
/// middle of the generated tokens.
int64_t BytesPerStep(const Model& model, const BenchTest& test);

/// Microseconds to keep a state (into memory at hand), to bring it back, and to
/// fork it (a new state): medians over `repetitions`. The state has consumed
/// `depth` tokens.
struct StateTimes {
  int64_t bytes = 0;  // of one session's recurrence
  double save_us = 0, restore_us = 0, fork_us = 0;
};
StateTimes MeasureState(const Model& model, int64_t depth, int64_t repetitions);

}  // namespace tarn::cli
