#include "runtime/generate/beam.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace tarn {
namespace {

// A hypothesis and one more token.
struct Continuation {
  size_t parent;
  int32_t token;
  double log_probability;
};

void CheckOptions(const Model& model, const BeamOptions& o) {
  const auto check = [](bool good, const char* name, const std::string& wanted,
                        const std::string& given) {
    if (!good) throw ArgumentError(StrCat("BeamSearch: ", name), wanted, given);
  };
  const int64_t vocab = model.vocab_size();
  check(model.config().task != Task::kImage, "model",
        "one whose logits are of tokens", "an image model");
  check(o.beam >= 1 && o.beam <= 1024, "beam", "1 to 1024", StrCat(o.beam));
  check(o.max_tokens >= 0, "max_tokens", "0 or more", StrCat(o.max_tokens));
  check(o.length_penalty >= 0 && std::isfinite(o.length_penalty),
        "length_penalty", "a number of 0 or more", StrCat(o.length_penalty));
  check(o.candidates >= 0 && o.candidates <= vocab, "candidates",
        StrCat("0 to ", vocab), StrCat(o.candidates));
  const int64_t known = o.candidates > 0 ? o.candidates : vocab;
  for (const int32_t token : {o.start, o.end}) {
    check(token >= 0 && token < known, token == o.start ? "start" : "end",
          StrCat("a token below ", known), StrCat(token));
  }
}

double Score(double log_probability, int64_t length, double penalty) {
  if (length == 0) return log_probability;
  return log_probability / std::pow(static_cast<double>(length), penalty);
}

// log sum exp, in double.
double LogSum(std::span<const float> logits) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - best);
  const double total = best + std::log(sum);
  if (!std::isfinite(total)) {
    throw NumericError("BeamSearch: logits", "finite numbers", StrCat(total));
  }
  return total;
}

// The hypotheses of one source.
class Beams {
 public:
  Beams(const Model& model, const State& start, const BeamOptions& options)
      : options_(options),
        vocab_(static_cast<size_t>(model.vocab_size())),
        order_(static_cast<size_t>(
            options.candidates > 0 ? options.candidates : model.vocab_size())),
        logits_(static_cast<size_t>(options.beam) * vocab_),
        most_(std::min(options.max_tokens,
                       model.max_tokens() - start.position())) {
    for (int64_t i = 0; i < options.beam; ++i) {
      states_.push_back(i == 0 ? start.Clone() : State(model));
      spare_.emplace_back(model);
    }
    if (most_ > 0) alive_.push_back({{}, 0, options.start});
  }

  // Adds one job for each hypothesis that continues; valid until Advance.
  void AddJobs(std::vector<Job>& jobs) {
    for (size_t i = 0; i < alive_.size(); ++i) {
      jobs.push_back(
          {&states_[i], {&alive_[i].next, 1}, &logits_[i * vocab_], false});
    }
  }

  // Call once the jobs have run: the best continuations replace their parents.
  void Advance() {
    if (alive_.empty()) return;
    const std::vector<Continuation> best = Best();
    std::vector<size_t> children(alive_.size(), 0);
    for (const Continuation& c : best) {
      children[c.parent] += c.token != options_.end;
    }
    std::vector<Alive> next;
    for (const Continuation& c : best) {
      if (c.token == options_.end) {
        Finish(alive_[c.parent].tokens, c.log_probability, true);
        continue;
      }
      // The last child takes its parent's state over; the others copy it.
      State& state = spare_[next.size()];
      if (--children[c.parent] == 0) {
        std::swap(state, states_[c.parent]);
      } else {
        state.CopyFrom(states_[c.parent]);
      }
      next.push_back({alive_[c.parent].tokens, c.log_probability, c.token});
      next.back().tokens.push_back(c.token);
    }
    std::swap(states_, spare_);
    alive_ = std::move(next);
    if (++length_ == most_) Close();
  }

  // Ends the hypotheses that still go on, as unfinished ones.
  void Close() {
    for (const Alive& a : alive_) Finish(a.tokens, a.log_probability, false);
    alive_.clear();
  }

  std::vector<Hypothesis> Take() {
    std::stable_sort(ended_.begin(), ended_.end(),
                     [](const Hypothesis& a, const Hypothesis& b) {
                       if (a.finished != b.finished) return a.finished;
                       return a.score > b.score;
                     });
    return std::move(ended_);
  }

 private:
  struct Alive {
    std::vector<int32_t> tokens;
    double log_probability;
    int32_t next;  // token that its state has not consumed
  };

  void Finish(const std::vector<int32_t>& tokens, double log_probability,
              bool finished) {
    const int64_t length =
        static_cast<int64_t>(tokens.size()) + (finished ? 1 : 0);
    ended_.push_back({tokens, log_probability,
                      Score(log_probability, length, options_.length_penalty),
                      finished});
  }

  std::vector<Continuation> Best() {
    const size_t places = static_cast<size_t>(options_.beam) - ended_.size();
    std::vector<Continuation> found;
    for (size_t i = 0; i < alive_.size(); ++i) {
      const std::span<const float> row(&logits_[i * vocab_], order_.size());
      const double sum = LogSum(row);
      const size_t most = std::min(places, order_.size());
      std::iota(order_.begin(), order_.end(), 0);
      std::partial_sort(order_.begin(),
                        order_.begin() + static_cast<int64_t>(most),
                        order_.end(), [&](int32_t a, int32_t b) {
                          const float x = row[static_cast<size_t>(a)];
                          const float y = row[static_cast<size_t>(b)];
                          return x != y ? x > y : a < b;
                        });
      for (size_t k = 0; k < most; ++k) {
        const double logit = row[static_cast<size_t>(order_[k])];
        found.push_back(
            {i, order_[k], alive_[i].log_probability + logit - sum});
      }
    }
    // The sort is stable: equals keep the order of their parents and ids.
    std::stable_sort(found.begin(), found.end(),
                     [](const Continuation& a, const Continuation& b) {
                       return a.log_probability > b.log_probability;
                     });
    found.resize(std::min(places, found.size()));
    return found;
  }

  const BeamOptions options_;
  const size_t vocab_;
  std::vector<int32_t> order_;  // ids of the candidates, scratch
  std::vector<float> logits_;   // [beam, vocab]
  std::vector<State> states_, spare_;
  std::vector<Alive> alive_;
  std::vector<Hypothesis> ended_;
  const int64_t most_;  // tokens of a hypothesis
  int64_t length_ = 0;
};

}  // namespace

std::vector<std::vector<Hypothesis>> BeamSearch(const Model& model,
                                                std::span<const State> starts,
                                                const BeamOptions& options,
                                                const StopCheck& stop) {
  CheckOptions(model, options);
  std::vector<Beams> beams;
  beams.reserve(starts.size());
  for (const State& start : starts) beams.emplace_back(model, start, options);
  std::vector<Job> jobs;
  while (!stop || !stop()) {
    jobs.clear();
    for (Beams& each : beams) each.AddJobs(jobs);
    if (jobs.empty()) break;
    model.StepBatch(jobs);
    for (Beams& each : beams) each.Advance();
  }
  std::vector<std::vector<Hypothesis>> results;
  for (Beams& each : beams) {
    each.Close();
    results.push_back(each.Take());
  }
  return results;
}

}  // namespace tarn
