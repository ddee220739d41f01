// One row at a time, without vectors: next to the products of the chosen
// experts the choice is a thousandth of the work.
#include "kernels/moe/router.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/row_tasks.h"

namespace tarn {
namespace {

// Added to the sum of the chosen sigmoids.
constexpr float kLeastSum = 1e-20f;

float RouterSigma(float x) {
  const float decay = std::exp(-std::abs(x));
  return (x < 0 ? decay : 1.0f) / (1.0f + decay);
}

// Whether expert `e` with logit l precedes one of a smaller index with logit
// `other`: the smaller index keeps its position unless l is really larger.
bool Precedes(float l, float other) {
  return std::isnan(l) ? !std::isnan(other) : l > other;
}

// The chosen experts of one row, the largest by key(expert), and their keys in
// `best`, both [top_k].
template <typename F>
void ChooseExperts(const F& key, int64_t experts, int64_t top_k,
                   int64_t* chosen, float* best) {
  int64_t found = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const float own = key(e);
    if (found == top_k && !Precedes(own, best[top_k - 1])) continue;
    int64_t at = found < top_k ? found++ : top_k - 1;
    for (; at > 0 && Precedes(own, best[at - 1]); --at) {
      best[at] = best[at - 1];
      chosen[at] = chosen[at - 1];
    }
    best[at] = own;
    chosen[at] = e;
  }
}

// The sum that softmax divides by, in units of exp(most).
float SumOfExp(const float* logits, int64_t count, float most) {
  float sum = 0;
  for (int64_t e = 0; e < count; ++e) sum += std::exp(logits[e] - most);
  return sum;
}

// Logits of the chosen experts to their weights, in place.
void WeighExperts(const RouterOptions& options, const float* logits,
                  int64_t experts, float* w) {
  const int64_t k = options.top_k;
  const float scale = static_cast<float>(options.scale);
  if (options.scores == RouterScores::kSigmoid) {
    float sum = kLeastSum;
    for (int64_t j = 0; j < k; ++j) sum += w[j] = RouterSigma(w[j]);
    const float factor = options.normalize ? scale / sum : scale;
    for (int64_t j = 0; j < k; ++j) w[j] *= factor;
    return;
  }
  const float most = w[0];  // the largest of all, as experts are in order
  const float sum = options.normalize ? SumOfExp(w, k, most)
                                      : SumOfExp(logits, experts, most);
  for (int64_t j = 0; j < k; ++j) w[j] = scale * (std::exp(w[j] - most) / sum);
}

void SigmoidGradientRow(const RouterOptions& options, const float* logits,
                        const int64_t* chosen, const float* grad,
                        float* grad_logits) {
  const int64_t k = options.top_k;
  const float scale = static_cast<float>(options.scale);
  float sum = kLeastSum, mean = 0;
  if (options.normalize) {
    for (int64_t j = 0; j < k; ++j) sum += RouterSigma(logits[chosen[j]]);
    for (int64_t j = 0; j < k; ++j) {
      mean += grad[j] * (RouterSigma(logits[chosen[j]]) / sum);
    }
  }
  const float factor = options.normalize ? scale / sum : scale;
  for (int64_t j = 0; j < k; ++j) {
    const float l = logits[chosen[j]];
    const float slope = RouterSigma(l) * RouterSigma(-l);
    grad_logits[chosen[j]] = factor * (grad[j] - mean) * slope;
  }
}

void SoftmaxGradientRow(const RouterOptions& options, const float* logits,
                        int64_t experts, const int64_t* chosen,
                        const float* grad, float* grad_logits) {
  const int64_t k = options.top_k;
  const float scale = static_cast<float>(options.scale);
  const float most = logits[chosen[0]];
  float sum = 0, mean = 0;
  if (options.normalize) {
    for (int64_t j = 0; j < k; ++j) sum += std::exp(logits[chosen[j]] - most);
  } else {
    sum = SumOfExp(logits, experts, most);
  }
  const auto score = [&](int64_t e) {
    return std::exp(logits[e] - most) / sum;
  };
  for (int64_t j = 0; j < k; ++j) mean += grad[j] * score(chosen[j]);
  if (!options.normalize) {
    for (int64_t e = 0; e < experts; ++e) {
      grad_logits[e] = -scale * mean * score(e);
    }
  }
  for (int64_t j = 0; j < k; ++j) {
    grad_logits[chosen[j]] = scale * (grad[j] - mean) * score(chosen[j]);
  }
}

void CheckRouter(const RouterOptions& options, int64_t rows, int64_t experts) {
  if (rows < 0 || experts < 1) {
    throw ShapeError("router: logits", "[rows, experts] with experts >= 1",
                     ShapeText({rows, experts}));
  }
  if (options.top_k < 1 || options.top_k > experts) {
    throw ArgumentError("router: top_k", StrCat("1 to ", experts),
                        StrCat(options.top_k));
  }
  if (!std::isfinite(options.scale)) {
    throw ArgumentError("router: scale", "a finite number",
                        StrCat(options.scale));
  }
  if (options.bias != nullptr && options.scores != RouterScores::kSigmoid) {
    throw ArgumentError("router: bias", "none with softmax scores", "biases");
  }
}

void WantRouterData(const char* name, const void* data, int64_t rows) {
  if (data == nullptr && rows > 0) {
    throw ArgumentError(StrCat("router: ", name), "data", "a null pointer");
  }
}

}  // namespace

void CheckChosen(const char* where, const int64_t* chosen, int64_t count,
                 int64_t experts) {
  for (int64_t i = 0; i < count; ++i) {
    if (chosen[i] < 0 || chosen[i] >= experts) {
      throw ArgumentError(StrCat(where, "[", i, "]"),
                          StrCat("0 to ", experts - 1), StrCat(chosen[i]));
    }
  }
}

void RouterForward(const RouterOptions& options, int64_t rows, int64_t experts,
                   const float* logits, int64_t* chosen, float* weights,
                   Executor& executor) {
  CheckRouter(options, rows, experts);
  WantRouterData("logits", logits, rows);
  WantRouterData("chosen", chosen, rows);
  WantRouterData("weights", weights, rows);
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    for (int64_t t = tasks.begin(task); t < tasks.end(task); ++t) {
      const float* row = logits + t * experts;
      float* w = weights + t * options.top_k;
      int64_t* own = chosen + t * options.top_k;
      if (options.bias == nullptr) {
        ChooseExperts([&](int64_t e) { return row[e]; }, experts, options.top_k,
                      own, w);
      } else {
        ChooseExperts(
            [&](int64_t e) { return RouterSigma(row[e]) + options.bias[e]; },
            experts, options.top_k, own, w);
        for (int64_t j = 0; j < options.top_k; ++j) w[j] = row[own[j]];
      }
      WeighExperts(options, row, experts, w);
    }
  });
}

void RouterBackward(const RouterOptions& options, int64_t rows, int64_t experts,
                    const float* logits, const int64_t* chosen,
                    const float* grad_weights, float* grad_logits,
                    Executor& executor) {
  CheckRouter(options, rows, experts);
  WantRouterData("logits", logits, rows);
  WantRouterData("chosen", chosen, rows);
  WantRouterData("grad_weights", grad_weights, rows);
  WantRouterData("grad_logits", grad_logits, rows);
  CheckChosen("router: chosen", chosen, rows * options.top_k, experts);
  const RowTasks tasks(rows);
  executor.ParallelFor(tasks.count(), [&](int64_t task, int) {
    for (int64_t t = tasks.begin(task); t < tasks.end(task); ++t) {
      const float* row = logits + t * experts;
      const int64_t* own = chosen + t * options.top_k;
      const float* grad = grad_weights + t * options.top_k;
      float* out = grad_logits + t * experts;
      std::fill(out, out + experts, 0.0f);
      if (options.scores == RouterScores::kSigmoid) {
        SigmoidGradientRow(options, row, own, grad, out);
      } else {
        SoftmaxGradientRow(options, row, experts, own, grad, out);
      }
    }
  });
}

}  // namespace tarn
