#include "runtime/sampling/sampler.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/rng.h"
#include "runtime/sampling/candidates.h"
#include "runtime/sampling/mirostat.h"
#include "runtime/sampling/penalties.h"
#include "runtime/sampling/temperature.h"
#include "runtime/sampling/truncation.h"

namespace tarn {
namespace {

// Streams of the same counter for what is drawn besides tokens: callers number
// theirs from 0.
constexpr uint64_t kXtcStream = uint64_t{1} << 63;
constexpr uint64_t kMirostatStream = uint64_t{1} << 62;

double UniformOf(const SamplerOptions& options, uint64_t stream,
                 uint64_t position) {
  return Rng(options.seed, options.stream ^ stream, position).Uniform();
}

bool Has(const SamplerOptions& options, SamplerStage stage) {
  return std::find(options.samplers.begin(), options.samplers.end(), stage) !=
         options.samplers.end();
}

bool IsGreedy(const SamplerOptions& options) {
  return options.temperature <= 0 &&
         (options.mirostat != 0 || Has(options, SamplerStage::kTemperature));
}

void RunStage(Candidates& candidates, SamplerStage stage,
              const SamplerOptions& options, uint64_t position) {
  switch (stage) {
    case SamplerStage::kTopNSigma:
      return TopNSigma(candidates, options);
    case SamplerStage::kTopK:
      return TopK(candidates, options);
    case SamplerStage::kTypicalP:
      return TypicalP(candidates, options);
    case SamplerStage::kTopP:
      return TopP(candidates, options);
    case SamplerStage::kMinP:
      return MinP(candidates, options);
    case SamplerStage::kXtc:
      return Xtc(candidates, options, UniformOf(options, kXtcStream, position));
    case SamplerStage::kTemperature:
      return DivideByTemperature(candidates, options);
    case SamplerStage::kPenalties:
    case SamplerStage::kDry:
      return;  // in all chains, before this
  }
}

Candidates RunChain(const SamplerOptions& options, const DryBreakers& breakers,
                    const SampleInput& input, const SamplerState& state) {
  Candidates candidates(input.logits);
  candidates.AddBias(options.logit_bias);
  candidates.Mask(input.allowed);
  // Greedy draws and Mirostat want the stages that change logits alone.
  const bool greedy = IsGreedy(options);
  for (const SamplerStage stage : options.samplers) {
    if (stage == SamplerStage::kPenalties) {
      ApplyPenalties(candidates, options, input.tokens);
    } else if (stage == SamplerStage::kDry) {
      ApplyDry(candidates, options, breakers, input.tokens);
    } else if (!greedy && options.mirostat == 0) {
      RunStage(candidates, stage, options, input.position);
    }
  }
  if (greedy) {
    candidates.KeepTop(1);
  } else if (options.mirostat != 0) {
    candidates.SetTemperature(options.temperature);
    KeepMirostat(candidates, options, state.mu);
  }
  return candidates;
}

// The candidate into whose part of [0, 1) `uniform` falls, where the best has
// the first part; and its probability.
TokenProbability Pick(Candidates& candidates, double uniform) {
  const double total = candidates.Total();
  const bool sorted = candidates.sorted();
  // Parts are taken in order only as far as they are needed.
  std::vector<Candidate> list = candidates.TakeList();
  if (!sorted) std::make_heap(list.begin(), list.end(), Worse);
  const double wanted = uniform * total;
  double mass = 0;
  TokenProbability picked = {};
  for (size_t taken = 0; taken < list.size(); ++taken) {
    const Candidate c = sorted ? list[taken] : list.front();
    const double weight = candidates.Weight(c);
    mass += weight;
    // Only rounding of the product or of the sum gives wanted >= the last mass:
    // the last of weight > 0 then.
    if (weight > 0) picked = {c.id, weight / total};
    if (mass > wanted) break;
    if (!sorted) {
      std::pop_heap(list.begin(), list.end() - static_cast<ptrdiff_t>(taken),
                    Worse);
    }
  }
  return picked;
}

int32_t DrawFrom(Candidates candidates, const SamplerOptions& options,
                 uint64_t position, SamplerState& state) {
  if (options.mirostat == 0 || IsGreedy(options)) {
    // One candidate needs no number.
    if (candidates.list().size() == 1) return candidates.list().front().id;
    return Pick(candidates, UniformOf(options, 0, position)).token;
  }
  const TokenProbability picked =
      Pick(candidates, UniformOf(options, kMirostatStream, position));
  state.mu = NextMu(options, state.mu, picked.probability);
  return picked.token;
}

}  // namespace

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)) {
  CheckSampler(options_);
}

Sampler::Sampler(SamplerOptions options, const Tokenizer& tokenizer)
    : Sampler(std::move(options)) {
  for (const LogitBias& bias : options_.logit_bias) {
    if (bias.token < tokenizer.vocab_size()) continue;
    throw ArgumentError("logit_bias",
                        StrCat("an id from 0 to ", tokenizer.vocab_size() - 1),
                        StrCat(bias.token));
  }
  if (HasDry(options_)) {
    breakers_ = DryBreakers(options_.dry_sequence_breakers, tokenizer);
  }
}

int32_t Sampler::Draw(const SampleInput& input, SamplerState& state) const {
  return DrawFrom(RunChain(options_, breakers_, input, state), options_,
                  input.position, state);
}

std::vector<TokenProbability> Sampler::Distribution(
    const SampleInput& input, const SamplerState& state) const {
  Candidates candidates = RunChain(options_, breakers_, input, state);
  candidates.Sort();
  const double total = candidates.Total();
  std::vector<TokenProbability> probabilities;
  probabilities.reserve(candidates.list().size());
  for (const Candidate& c : candidates.list()) {
    probabilities.push_back({c.id, candidates.Weight(c) / total});
  }
  return probabilities;
}

int64_t TokensThatCount(const SamplerOptions& options) {
  int64_t most = 0;
  const auto count = [&](SamplerStage stage, bool acts, int64_t last) {
    if (!acts || !Has(options, stage) || most < 0) return;
    most = last < 0 ? -1 : std::max(most, last);
  };
  count(SamplerStage::kPenalties, HasPenalties(options), options.repeat_last_n);
  count(SamplerStage::kDry, HasDry(options), options.dry_penalty_last_n);
  return most;
}

int32_t Sample(std::span<const float> logits, const SamplerOptions& options,
               uint64_t position) {
  CheckSampler(options);
  // Without tokens no penalty changes a logit: nothing is allocated.
  if (IsGreedy(options) && options.logit_bias.empty()) {
    return CheckedArgmax(logits);
  }
  const SampleInput input{.logits = logits, .position = position};
  SamplerState state{2 * options.mirostat_tau};
  return DrawFrom(RunChain(options, DryBreakers(), input, state), options,
                  position, state);
}

}  // namespace tarn
