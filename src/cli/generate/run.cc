#include "cli/generate/run.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace tarn::cli {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start)
      .count();
}

double Median(std::vector<float> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (double{*middle} + *std::max_element(values.begin(), middle)) / 2;
}

// What stands in for an empty prompt: logits need one consumed token.
int32_t StartToken(const Tokenizer& tokenizer) {
  const Result<std::vector<int32_t>> newline = tokenizer.Encode("\n");
  return newline.ok() && !newline.value().empty() ? newline.value().front() : 0;
}

// In blocks, so that a long prompt can be interrupted; any split of a prompt
// gives the same bits. False when stopped.
bool PrefillPrompt(const Model& model, State& state,
                   std::span<const int32_t> tokens, float* logits,
                   const StopCheck& stop) {
  constexpr size_t kBlock = 1024;
  while (!tokens.empty()) {
    if (stop()) return false;
    const auto block = tokens.first(std::min(kBlock, tokens.size()));
    tokens = tokens.subspan(block.size());
    model.Prefill(state, block, tokens.empty() ? logits : nullptr);
  }
  return !stop();
}

}  // namespace

void TokenTimes::Add(double microseconds) {
  const float value = static_cast<float>(microseconds);
  if (count_ < kWindow) {
    first_.push_back(value);
    last_.push_back(value);
  } else {
    last_[static_cast<size_t>(count_ % kWindow)] = value;
  }
  ++count_;
}

int64_t TokenTimes::Window() const { return std::min(kWindow, count_ / 2); }

double TokenTimes::MedianFirst() const {
  return Median({first_.begin(), first_.begin() + Window()});
}

double TokenTimes::MedianLast() const {
  std::vector<float> values;
  for (int64_t i = count_ - Window(); i < count_; ++i) {
    values.push_back(last_[static_cast<size_t>(i % kWindow)]);
  }
  return Median(std::move(values));
}

GenerateStats RunGenerate(const Model& model, const Tokenizer& tokenizer,
                          const std::vector<int32_t>& prompt,
                          const GenerateOptions& options, const TokenSink& sink,
                          const StopCheck& stop) {
  CheckSampler(options.sampler);
  GenerateStats stats;
  stats.prompt_tokens = static_cast<int64_t>(prompt.size());
  State state(model);
  stats.state_bytes_start = stats.state_bytes_end = state.bytes();
  std::vector<float> logits(static_cast<size_t>(model.vocab_size()));
  // Rows beyond the tokenizer's table stand for no text.
  const std::span<const float> candidates(
      logits.data(), static_cast<size_t>(tokenizer.vocab_size()));
  const std::vector<int32_t> start{StartToken(tokenizer)};

  const Clock::time_point begin = Clock::now();
  const bool prefilled = PrefillPrompt(
      model, state, prompt.empty() ? start : prompt, logits.data(), stop);
  stats.prefill_ms = MillisecondsSince(begin);
  std::string bytes;
  while (prefilled && stats.tokens < options.max_tokens) {
    const Clock::time_point token_begin = Clock::now();
    const int32_t token = Sample(candidates, options.sampler,
                                 static_cast<uint64_t>(state.position()));
    if (stats.tokens == 0) stats.first_token_ms = MillisecondsSince(begin);
    model.Step(state, token, logits.data());
    const double token_ms = MillisecondsSince(token_begin);
    ++stats.tokens;
    stats.decode_ms += token_ms;
    stats.times.Add(1000 * token_ms);
    bytes.clear();
    tokenizer.Decode(token, bytes);
    if (!sink(bytes) || stop()) break;
  }
  stats.state_bytes_end = state.bytes();
  return stats;
}

}  // namespace tarn::cli
