#include "cli/generate/target_search.h"

#include <chrono>

#include "cli/console/signals.h"
#include "runtime/generate/target.h"

namespace tarn::cli {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start)
      .count();
}

}  // namespace

std::vector<TargetResult> FindTargets(
    const LoadedModel& opened, std::span<const std::vector<int32_t>> sources,
    const TargetOptions& options, TargetTimes& times) {
  BeamOptions beam;
  beam.beam = options.beam;
  beam.max_tokens = options.max_tokens;
  beam.length_penalty = options.length_penalty;
  beam = TargetBeam(opened.tokenizer, beam);
  std::vector<TargetResult> results;
  std::vector<State> starts;
  const Clock::time_point begin = Clock::now();
  for (const std::vector<int32_t>& source : sources) {
    starts.push_back(opened.model.Encode(source));
    TargetResult& result = results.emplace_back();
    result.source_tokens = static_cast<int64_t>(source.size());
    result.state_bytes = starts.back().bytes();
    result.memory_bytes = starts.back().memory_bytes();
  }
  times.encode_ms += MillisecondsSince(begin);
  const Clock::time_point decode = Clock::now();
  auto found = BeamSearch(opened.model, starts, beam,
                          [] { return PendingSignal() != 0; });
  times.decode_ms += MillisecondsSince(decode);
  for (size_t i = 0; i < found.size(); ++i) {
    results[i].hypotheses = std::move(found[i]);
  }
  return results;
}

}  // namespace tarn::cli
