// For tests: a problem's tokens fed to a step as runs of given lengths.
#pragma once

#include <vector>

#include "kernels/decay/test_problem.h"

namespace tarn::testing {

// Runs of one token at odd places go from one state into another, the rest in
// place.
template <class F>
RecurrentOutcome FeedTokens(const DecayProblem& p,
                            const std::vector<std::vector<double>>& betas,
                            const std::vector<int64_t>& runs, DType dtype,
                            bool spread, Executor& executor, const F& step) {
  const RecurrentCall call({p}, betas, dtype, spread, false);
  GuardedTensor out(1, p.seq_len, p.value_heads, p.d_value, dtype, spread);
  RecurrentOutcome s;
  s.S.assign(p.S.begin(), p.S.end());
  s.S.resize(p.value_heads * p.d_key * p.d_value, 0.0f);
  int64_t t = 0;
  for (int64_t run : runs) {
    const auto part = [&](const TensorView& whole) {
      TensorView view = whole;
      if (view.size[3] == 0) return view;
      view.data = view.Row(0, t, 0);
      view.size[1] = run;
      return view;
    };
    RecurrentInputs in = call.in;
    in.initial_state = nullptr;
    for (TensorView* view :
         {&in.queries, &in.keys, &in.values, &in.gates, &in.betas}) {
      *view = part(*view);
    }
    if (t % 2 == 1 || run == 0) {
      std::vector<float> next(s.S.size(), PoisonFloat());
      const std::vector<float> before = s.S;
      step(call.options, in, {s.S.data(), next.data()}, part(out.view()),
           executor);
      EXPECT_EQ(before, s.S);
      s.S.swap(next);
    } else {
      step(call.options, in, {s.S.data(), s.S.data()}, part(out.view()),
           executor);
    }
    t += run;
  }
  EXPECT_TRUE(out.GuardsIntact());
  s.out = out.Read(0, 0, p.seq_len);
  return s;
}

}  // namespace tarn::testing
