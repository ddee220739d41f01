// Targets for sources with a sequence-to-sequence model: what `tarn generate`
// and `tarn eval` share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "runtime/generate/beam.h"

namespace tarn::cli {

struct TargetOptions {
  int64_t beam = 1;
  int64_t max_tokens = 256;
  double length_penalty = 1.0;
};

/// What a source gave, and how long it took.
struct TargetResult {
  std::vector<Hypothesis> hypotheses;  // the best first
  int64_t source_tokens = 0;
  int64_t state_bytes = 0;   // of one hypothesis at its start
  int64_t memory_bytes = 0;  // of the source, shared by all
};

struct TargetTimes {
  double encode_ms = 0, decode_ms = 0;
};

/// Encodes all sources and searches for their targets together. Stops at a
/// signal. Adds to `times`. Throws FormatError when the tokenizer has no
/// newline, which begins and ends every target.
std::vector<TargetResult> FindTargets(
    const LoadedModel& opened, std::span<const std::vector<int32_t>> sources,
    const TargetOptions& options, TargetTimes& times);

}  // namespace tarn::cli
