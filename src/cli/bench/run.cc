#include "cli/bench/run.h"

#include <algorithm>
#include <chrono>

#include "cli/commands/model_facts.h"
#include "cli/console/median.h"
#include "core/rng.h"

namespace tarn::cli {
namespace {

using Clock = std::chrono::steady_clock;

int64_t NsSince(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() -
                                                              begin)
      .count();
}

std::vector<int32_t> RandomTokens(const Model& model, int64_t count) {
  Rng rng(1);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(
        rng.Below(static_cast<uint64_t>(model.vocab_size())));
  }
  return tokens;
}

// The sequences of one test, and where their logits go.
class Sessions {
 public:
  Sessions(const Model& model, const BenchTest& test, const State& start)
      : model_(model),
        start_(start),
        logits_(static_cast<size_t>(test.sessions * model.n_outputs())),
        jobs_(static_cast<size_t>(test.sessions)) {
    for (int64_t i = 0; i < test.sessions; ++i) {
      states_.push_back(start_.Clone());
    }
  }

  void Restart() {
    for (State& state : states_) state.CopyFrom(start_);
  }

  void Prefill(std::span<const int32_t> tokens) {
    model_.Prefill(states_[0], tokens, logits_.data());
  }

  // Session i takes token i + 1 of `tokens`, and so on around.
  void Step(int64_t step, std::span<const int32_t> tokens) {
    if (jobs_.size() == 1) {
      model_.Step(states_[0], tokens[step % tokens.size()], logits_.data());
      return;
    }
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const size_t at = (static_cast<size_t>(step) + i) % tokens.size();
      jobs_[i] = {&states_[i], tokens.subspan(at, 1),
                  logits_.data() + i * model_.n_outputs(), false};
    }
    model_.StepBatch(jobs_);
  }

 private:
  const Model& model_;
  const State& start_;
  std::vector<State> states_;
  std::vector<float> logits_;  // [sessions, n_outputs]
  std::vector<Job> jobs_;
};

}  // namespace

void AdvanceTo(const Model& model, int64_t depth, State& state) {
  const std::vector<int32_t> tokens = RandomTokens(model, depth);
  const int64_t done = std::min(depth, state.position());
  model.Prefill(state, std::span(tokens).subspan(static_cast<size_t>(done)));
}

BenchTimes RunBenchTest(const Model& model, const BenchTest& test,
                        const State& start, const BenchRuns& runs,
                        const std::function<bool()>& stopped) {
  // Steps cycle through a short list: the values of tokens do not matter.
  constexpr int64_t kStepTokens = 4096;
  const std::vector<int32_t> tokens =
      RandomTokens(model, test.prompt > 0 ? test.prompt : kStepTokens);
  Sessions sessions(model, test, start);
  BenchTimes times;
  std::vector<int64_t> steps;
  for (int64_t run = -runs.warm_ups; run < runs.repetitions && !stopped();
       ++run) {
    sessions.Restart();
    const size_t steps_before = steps.size();
    const Clock::time_point begin = Clock::now();
    if (test.prompt > 0) sessions.Prefill(tokens);
    Clock::time_point last = begin;
    for (int64_t i = 0; i < test.generate && !stopped(); ++i) {
      sessions.Step(i, tokens);
      const Clock::time_point now = Clock::now();
      steps.push_back(
          std::chrono::duration_cast<std::chrono::nanoseconds>(now - last)
              .count());
      last = now;
    }
    const int64_t taken = NsSince(begin);
    if (run < 0) {
      steps.clear();  // a warm-up
    } else if (stopped()) {
      steps.resize(steps_before);
    } else {
      times.run_ns.push_back(taken);
    }
  }
  times.median_step_ns = Median(steps);
  return times;
}

int64_t BytesPerStep(const Model& model, const BenchTest& test) {
  const double element = model.bytes_per_weight();
  const int64_t weights =
      CostOfToken(model.config(), element, 0, 0).weight_bytes;
  const int64_t cached = test.depth + (test.generate + 1) / 2;
  return weights + test.sessions * (2 * model.state_bytes() +
                                    cached * model.state_bytes_per_token());
}

StateTimes MeasureState(const Model& model, const State& start,
                        int64_t repetitions) {
  StateTimes times;
  // What the state holds, without the room to grow.
  times.bytes =
      model.state_bytes() + start.position() * model.state_bytes_per_token();
  std::vector<int64_t> fork, first, second;
  const bool steps = start.position() + 2 <= model.max_tokens();
  for (int64_t i = 0; i <= 4 * repetitions; ++i) {
    Clock::time_point begin = Clock::now();
    State copy = start.Clone();
    fork.push_back(NsSince(begin));
    if (!steps) continue;
    for (std::vector<int64_t>* step : {&first, &second}) {
      begin = Clock::now();
      model.Step(copy, 0);
      step->push_back(NsSince(begin));
    }
  }
  times.fork_us = Median(fork) / 1000;
  if (steps) {
    times.copy_us = std::max(0.0, (Median(first) - Median(second)) / 1000);
  }
  return times;
}

}  // namespace tarn::cli
