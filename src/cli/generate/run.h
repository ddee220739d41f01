// The generation loop behind `tarn generate`, apart from flags and printing.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "runtime/model/model.h"
#include "runtime/generate/sampler.h"
#include "text/tokenizer.h"

namespace tarn::cli {

/// Microseconds a token over a run of any length in constant memory: the first
/// and the last kWindow of them are kept.
class TokenTimes {
 public:
  static constexpr int64_t kWindow = 10'000;
  void Add(double microseconds);
  int64_t count() const { return count_; }
  /// Medians over the first and the last min(kWindow, count / 2) tokens; 0 when
  /// there are fewer than two.
  double MedianFirst() const;
  double MedianLast() const;

 private:
  int64_t Window() const;
  std::vector<float> first_, last_;  // last_ is a ring
  int64_t count_ = 0;
};

struct GenerateOptions {
  SamplerOptions sampler;
  int64_t max_tokens = 256;
};

struct GenerateStats {
  int64_t prompt_tokens = 0;  // consumed; an empty prompt counts as 0
  int64_t tokens = 0;         // generated
  double prefill_ms = 0;
  double first_token_ms = 0;  // from the start of prefill
  double decode_ms = 0;       // sampling and steps, without output
  int64_t state_bytes_start = 0, state_bytes_end = 0;
  TokenTimes times;
};

/// Called with the bytes of each token; false ends the run.
using TokenSink = std::function<bool(std::string_view bytes)>;
/// Asked between steps and between blocks of the prompt; true ends the run.
using StopCheck = std::function<bool()>;

/// Consumes the prompt and generates. An empty prompt starts from a newline (or
/// the first token of the table, if that has no newline), which is not counted.
/// Every generated token is one draw and one step, so that at the end the state
/// holds the whole text. Throws NumericError when the model gives NaN.
GenerateStats RunGenerate(const Model& model, const Tokenizer& tokenizer,
                          const std::vector<int32_t>& prompt,
                          const GenerateOptions& options, const TokenSink& sink,
                          const StopCheck& stop);

}  // namespace tarn::cli
