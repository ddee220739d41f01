#include "torch_nn/models/decode.h"

#include <algorithm>
#include <cmath>

namespace tarn::nn {
namespace {

void CheckOptions(const ModelConfig& config, const DecodeOptions& o) {
  const auto check = [](bool good, const char* name, const std::string& wanted,
                        const std::string& given) {
    if (!good) throw ArgumentError(StrCat("decode: ", name), wanted, given);
  };
  check(o.beam >= 1, "beam", "1 or more", StrCat(o.beam));
  check(o.max_len >= 0, "max_len", "0 or more", StrCat(o.max_len));
  check(o.length_penalty >= 0 && std::isfinite(o.length_penalty),
        "length_penalty", "a number of 0 or more", StrCat(o.length_penalty));
  const std::string known = StrCat("a token below ", config.vocab_size);
  check(o.start >= 0 && o.start < config.vocab_size, "start", known,
        StrCat(o.start));
  check(o.end >= 0 && o.end < config.vocab_size, "end", known, StrCat(o.end));
}

// Tokens that a hypothesis may have: max_len, or as many as there are
// positions.
int64_t MostTokens(const ModelConfig& config, const DecodeOptions& options) {
  if (config.positions != Positions::kLearned) return options.max_len;
  return std::min(options.max_len, config.max_positions);
}

double Score(double log_probability, int64_t length, double penalty) {
  if (length == 0) return log_probability;
  return log_probability / std::pow(static_cast<double>(length), penalty);
}

Hypothesis Ended(std::vector<int64_t> tokens, double log_probability,
                 bool finished, double penalty) {
  const int64_t length = static_cast<int64_t>(tokens.size()) + finished;
  const double score = Score(log_probability, length, penalty);
  return {std::move(tokens), log_probability, score, finished};
}

torch::Tensor Column(const std::vector<int64_t>& tokens) {
  return torch::tensor(tokens, torch::kInt64).unsqueeze(1);  // [rows, 1]
}

// One step of all rows: log probabilities [rows, vocab] in double, on the CPU.
torch::Tensor Step(Seq2SeqImpl& model, const std::vector<int64_t>& next,
                   StackState& state) {
  auto [logits, after] = model.Prefill(Column(next).to(model.device()), state);
  state = std::move(after);
  const torch::Tensor log_probabilities =
      torch::log_softmax(logits.select(1, 0).to(torch::kCPU, torch::kFloat64),
                         -1)
          .contiguous();
  if (!torch::isfinite(log_probabilities).all().item<bool>()) {
    throw NumericError("decode: logits", "finite numbers", "NaN or infinity");
  }
  return log_probabilities;
}

// A hypothesis that continues, and its row of the state.
struct Alive {
  std::vector<int64_t> tokens;
  double log_probability = 0;
  int64_t row = 0;
};

struct Continuation {
  const Alive* parent;
  int64_t token;
  double log_probability;
};

// The best continuations of one source, best first.
std::vector<Continuation> Best(const std::vector<Alive>& alive,
                               const torch::Tensor& log_probabilities,
                               size_t places) {
  const int64_t vocab = log_probabilities.size(1);
  std::vector<Continuation> found;
  for (const Alive& each : alive) {
    const double* row = log_probabilities.data_ptr<double>() + each.row * vocab;
    for (int64_t token = 0; token < vocab; ++token) {
      found.push_back({&each, token, each.log_probability + row[token]});
    }
  }
  // The sort is stable: equals stay in the order of their parents and ids.
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) {
                     return a.log_probability > b.log_probability;
                   });
  found.resize(std::min(places, found.size()));
  return found;
}

struct Source {
  std::vector<Alive> alive;
  std::vector<Hypothesis> ended;
};

// Replaces the live hypotheses of a source by the best continuations.
void Advance(Source& source, const torch::Tensor& log_probabilities,
             const DecodeOptions& options) {
  std::vector<Alive> next;
  const size_t places = static_cast<size_t>(options.beam) - source.ended.size();
  for (const auto& [parent, token, log_probability] :
       Best(source.alive, log_probabilities, places)) {
    if (token == options.end) {
      source.ended.push_back(
          Ended(parent->tokens, log_probability, true, options.length_penalty));
      continue;
    }
    next.push_back({parent->tokens, log_probability, parent->row});
    next.back().tokens.push_back(token);
  }
  source.alive = std::move(next);
}

}  // namespace

std::vector<Hypothesis> GreedyDecode(Seq2SeqImpl& model,
                                     const torch::Tensor& tokens,
                                     const torch::Tensor& lengths,
                                     const DecodeOptions& options) {
  CheckOptions(model.config(), options);
  torch::NoGradGuard no_grad;
  StackState state = model.Encode(tokens.to(model.device()), lengths);
  const size_t batch = static_cast<size_t>(state.batch());
  std::vector<int64_t> next(batch, options.start);
  std::vector<Hypothesis> found(batch);
  size_t going = batch;
  const int64_t most = MostTokens(model.config(), options);
  for (int64_t i = 0; i < most && going > 0; ++i) {
    const torch::Tensor log_probabilities = Step(model, next, state);
    const torch::Tensor best = log_probabilities.argmax(-1);
    for (size_t b = 0; b < batch; ++b) {
      Hypothesis& each = found[b];
      if (each.finished) continue;  // its last step is repeated
      const int64_t row = static_cast<int64_t>(b);
      next[b] = best[row].item<int64_t>();
      each.log_probability += log_probabilities[row][next[b]].item<double>();
      each.finished = next[b] == options.end;
      if (each.finished) {
        --going;
      } else {
        each.tokens.push_back(next[b]);
      }
    }
  }
  for (Hypothesis& each : found) {
    each = Ended(std::move(each.tokens), each.log_probability, each.finished,
                 options.length_penalty);
  }
  return found;
}

std::vector<std::vector<Hypothesis>> BeamSearch(Seq2SeqImpl& model,
                                                const torch::Tensor& tokens,
                                                const torch::Tensor& lengths,
                                                const DecodeOptions& options) {
  CheckOptions(model.config(), options);
  torch::NoGradGuard no_grad;
  StackState state = model.Encode(tokens.to(model.device()), lengths);
  std::vector<Source> sources(static_cast<size_t>(state.batch()));
  std::vector<int64_t> next(sources.size(), options.start);
  for (size_t b = 0; b < sources.size(); ++b) {
    sources[b].alive.push_back({{}, 0.0, static_cast<int64_t>(b)});
  }
  const int64_t most = MostTokens(model.config(), options);
  for (int64_t i = 0; i < most && !next.empty(); ++i) {
    const torch::Tensor log_probabilities = Step(model, next, state);
    // Rows of the state after the step, one for each hypothesis that continues.
    std::vector<int64_t> rows;
    next.clear();
    for (Source& source : sources) {
      Advance(source, log_probabilities, options);
      for (Alive& each : source.alive) {
        rows.push_back(each.row);
        next.push_back(each.tokens.back());
        each.row = static_cast<int64_t>(rows.size()) - 1;
      }
    }
    state = state.IndexSelect(torch::tensor(rows, torch::kInt64));
  }
  std::vector<std::vector<Hypothesis>> results;
  for (Source& source : sources) {
    for (Alive& each : source.alive) {
      source.ended.push_back(Ended(std::move(each.tokens), each.log_probability,
                                   false, options.length_penalty));
    }
    std::stable_sort(source.ended.begin(), source.ended.end(),
                     [](const Hypothesis& a, const Hypothesis& b) {
                       if (a.finished != b.finished) return a.finished;
                       return a.score > b.score;
                     });
    results.push_back(std::move(source.ended));
  }
  return results;
}

}  // namespace tarn::nn
