// How tokens are drawn: the options of the sampling chain, with llama.cpp's
// names and defaults. option_table.h has their ranges and what they mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tarn {

/// Added to the logit of a token before all else: -100 to 100, or -infinity for
/// never.
struct LogitBias {
  int32_t token = 0;
  float bias = 0;
  bool operator==(const LogitBias&) const = default;
};

/// The stages of the chain whose order a caller may choose.
enum class SamplerStage : uint8_t {
  kPenalties,
  kDry,
  kTopNSigma,
  kTopK,
  kTypicalP,
  kTopP,
  kMinP,
  kXtc,
  kTemperature
};

inline constexpr size_t kMaxLogitBiases = 1024;
inline constexpr size_t kMaxDryBreakers = 16;
inline constexpr size_t kMaxDryBreakerBytes = 40;

/// A value. Fields are checked by CheckSampler.
struct SamplerOptions {
  double temperature = 0.8;  // <= 0: greedy, ties to the lowest id; <= 100
  int64_t top_k = 40;        // 0: off
  double top_p = 0.95;       // (0, 1], 1: off
  double min_p = 0.05;       // [0, 1], relative to the best; 0: off
  uint64_t seed = 0;
  uint64_t stream = 0;  // forks and batch rows draw from their own stream

  double typical_p = 1;     // (0, 1], 1: off
  double top_n_sigma = -1;  // <= 0: off
  double xtc_probability = 0, xtc_threshold = 0.1;
  double dynatemp_range = 0, dynatemp_exponent = 1;
  int64_t min_keep = 0;  // the fewest tokens that a truncating stage leaves

  int64_t repeat_last_n = 64;  // tokens that count for penalties; -1: all
  double repeat_penalty = 1, presence_penalty = 0, frequency_penalty = 0;

  double dry_multiplier = 0, dry_base = 1.75;
  int64_t dry_allowed_length = 2, dry_penalty_last_n = 64;  // -1: all
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};

  int64_t mirostat = 0;  // 1 or 2: in place of the truncating stages
  double mirostat_tau = 5, mirostat_eta = 0.1;

  std::vector<LogitBias> logit_bias = {};
  /// The stages that run, each at most once, in this order.
  std::vector<SamplerStage> samplers = {
      SamplerStage::kPenalties,  SamplerStage::kDry,
      SamplerStage::kTopNSigma,  SamplerStage::kTopK,
      SamplerStage::kTypicalP,   SamplerStage::kTopP,
      SamplerStage::kMinP,       SamplerStage::kXtc,
      SamplerStage::kTemperature};
};

/// Throws ArgumentError naming the option. O(rows of the table and entries of
/// lists).
void CheckSampler(const SamplerOptions& options);

}  // namespace tarn
