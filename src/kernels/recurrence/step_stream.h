// For tests of steps: a problem's tokens fed as runs of given lengths, and
// states in the slots of a ring.
#pragma once

#include <vector>

#include "kernels/recurrence/test_problem.h"

namespace tarn::testing {

// `run` tokens from token t on.
inline TensorView TokensOf(TensorView view, int64_t t, int64_t run) {
  if (view.size[3] == 0) return view;  // absent
  view.data = view.Row(0, t, 0);
  view.size[1] = run;
  return view;
}
inline RecurrentInputs TokensOf(RecurrentInputs in, int64_t t, int64_t run) {
  in.initial_state = nullptr;
  for (TensorView* view : {&in.queries, &in.keys, &in.values, &in.gates,
                           &in.betas, &in.reads, &in.writes}) {
    *view = TokensOf(*view, t, run);
  }
  return in;
}

// What an operator takes in addition to the tensors of RecurrentCall.
struct NothingMore {
  RecurrentInputs operator()(const RecurrentInputs& in) const { return in; }
};

inline std::vector<float> InitialState(const DecayProblem& p) {
  std::vector<float> S(p.S.begin(), p.S.end());
  S.resize(p.value_heads * p.d_key * p.d_value, 0.0f);
  return S;
}

// Runs of one token at odd places go from one state into another, the rest in
// place.
template <class F, class More = NothingMore>
RecurrentOutcome FeedTokens(const DecayProblem& p,
                            const std::vector<std::vector<double>>& betas,
                            const std::vector<int64_t>& runs, DType dtype,
                            bool spread, Executor& executor, const F& step,
                            const More& more = {}) {
  const RecurrentCall call({p}, betas, dtype, spread, false);
  const RecurrentInputs all = more(call.in);
  GuardedTensor out(1, p.seq_len, p.value_heads, p.d_value, dtype, spread);
  RecurrentOutcome s;
  s.S = InitialState(p);
  int64_t t = 0;
  for (int64_t run : runs) {
    const RecurrentInputs in = TokensOf(all, t, run);
    const TensorView to = TokensOf(out.view(), t, run);
    if (t % 2 == 1 || run == 0) {
      std::vector<float> next(s.S.size(), PoisonFloat());
      const std::vector<float> before = s.S;
      step(call.options, in, {s.S.data(), next.data()}, to, executor);
      EXPECT_EQ(before, s.S);
      s.S.swap(next);
    } else {
      step(call.options, in, {s.S.data(), s.S.data()}, to, executor);
    }
    t += run;
  }
  EXPECT_TRUE(out.GuardsIntact());
  s.out = out.Read(0, 0, p.seq_len);
  return s;
}

// Problems of several lengths as one call whose row b reads slot 2 b of a ring
// and writes slot 2 b + 1, except row 1, which is skipped: every row gets the
// bits of alone(b), and no other slot changes.
template <class F, class Alone, class More = NothingMore>
void ExpectSlotsOfABatch(const std::vector<DecayProblem>& problems,
                         const std::vector<std::vector<double>>& betas,
                         const F& step, const Alone& alone,
                         const More& more = {}) {
  SerialExecutor serial;
  const RecurrentCall call(problems, betas, DType::kF32, true, false);
  RecurrentInputs in = more(call.in);
  in.initial_state = nullptr;
  const DecayProblem& p = problems[0];
  const int64_t size = p.value_heads * p.d_key * p.d_value;
  std::vector<float> pool((2 * call.count + 1) * size, PoisonFloat());
  std::vector<int64_t> reads, writes;
  for (int64_t b = 0; b < call.count; ++b) {
    std::copy_n(call.S.begin() + b * size, size, pool.begin() + 2 * b * size);
    reads.push_back(b == 1 ? -1 : 2 * b);
    writes.push_back(2 * b + 1);
  }
  GuardedTensor out(call.count, call.seq_len, p.value_heads, p.d_value,
                    DType::kF32, true);
  step(call.options, in,
       {pool.data(), pool.data(), reads.data(), writes.data()}, out.view(),
       serial);
  EXPECT_TRUE(out.GuardsIntact());
  for (int64_t b = 0; b < call.count; ++b) {
    const auto rows = out.Read(b, 0, call.seq_len);
    const RecurrentOutcome one = alone(b);
    const bool skipped = b == 1;
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(skipped || i >= one.out.size() ? 0.0 : one.out[i], rows[i]);
    }
    const std::vector<float> after(pool.begin() + (2 * b + 1) * size,
                                   pool.begin() + (2 * b + 2) * size);
    EXPECT_EQ(skipped, std::isnan(after[0]));
    EXPECT_TRUE(skipped || SameVectorBits(after, one.S));
    EXPECT_EQ(0, std::memcmp(&pool[2 * b * size], &call.S[b * size],
                             size * sizeof(float)));
  }
}

// Token after token reads slot t and writes slot t + 1 of a ring of four, after
// another token was tried from the same slot and rejected: the bits are those
// of plain states that no rejected token has touched, and the slots after it
// keep theirs.
template <class F, class More = NothingMore>
void ExpectARingOfStates(const DecayProblem& p,
                         const std::vector<std::vector<double>>& betas,
                         const F& step, const More& more = {}) {
  constexpr int64_t kSlots = 4;
  SerialExecutor serial;
  const RecurrentCall call({p}, betas, DType::kF32, false, false);
  const RecurrentInputs all = more(call.in);
  std::vector<float> plain = InitialState(p);
  const auto size = static_cast<int64_t>(plain.size());
  std::vector<float> pool(kSlots * size, PoisonFloat());
  std::copy(plain.begin(), plain.end(), pool.begin());
  GuardedTensor out(1, 1, p.value_heads, p.d_value, DType::kF32, false);
  GuardedTensor wanted = out;
  for (int64_t t = 0; t < p.seq_len; ++t) {
    const int64_t read = t % kSlots, write = (t + 1) % kSlots;
    std::vector<float> expected = pool;
    for (int64_t token : {(t + 1) % p.seq_len, t}) {
      step(call.options, TokensOf(all, token, 1),
           RecurrentState{pool.data(), pool.data(), &read, &write}, out.view(),
           serial);
    }
    step(call.options, TokensOf(all, t, 1),
         RecurrentState{plain.data(), plain.data()}, wanted.view(), serial);
    std::copy(plain.begin(), plain.end(), expected.begin() + write * size);
    EXPECT_TRUE(SameVectorBits(expected, pool)) << t;
    EXPECT_EQ(wanted.Read(0, 0, 1), out.Read(0, 0, 1)) << t;
  }
}

}  // namespace tarn::testing
