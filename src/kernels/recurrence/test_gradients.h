// Test harness of the gradients of the gated recurrences: random losses, and
// the operators run backward through the buffers of test_problem.h.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/recurrence/test_problem.h"

namespace tarn::testing {

// A random loss: gradients of the output and of the final state.
struct RecurrentLoss {
  std::vector<double> out, S;
};

inline RecurrentLoss MakeRecurrentLoss(const DecayProblem& p, uint64_t seed,
                                       DType dtype = DType::kF32) {
  std::mt19937_64 rng(seed + 1000);
  RecurrentLoss loss;
  loss.out = Random(p.seq_len * p.value_heads * p.d_value, rng);
  loss.S = Random(p.value_heads * p.d_key * p.d_value, rng);
  for (double& x : loss.out) x = Round(x, dtype);
  for (double& x : loss.S) x = static_cast<float>(x);
  return loss;
}

inline double LossValue(const RecurrentLoss& loss,
                        const std::vector<double>& out,
                        const std::vector<double>& S) {
  double sum = 0;
  for (size_t i = 0; i < loss.out.size(); ++i) sum += loss.out[i] * out[i];
  for (size_t i = 0; i < loss.S.size(); ++i) sum += loss.S[i] * S[i];
  return sum;
}

// One problem's gradients; gates, head gates and bonus as the problem has them.
struct RecurrentGradientOutcome {
  std::vector<double> queries, keys, values, gates, betas;
  std::vector<float> S, bonus;
};

// Runs `backward(options, in, gradients, executor)`. states: whether gradients
// of states come in and are wanted. Sums over the batch go to the first
// problem.
template <class F>
std::vector<RecurrentGradientOutcome> RunRecurrentGradients(
    const std::vector<DecayProblem>& problems,
    const std::vector<std::vector<double>>& beta_rows,
    const std::vector<RecurrentLoss>& losses, DType dtype, bool spread,
    bool packed, Executor& executor, const F& backward, bool states = true,
    const std::vector<float>* checkpoints = nullptr) {
  const DecayProblem& p0 = problems[0];
  const RecurrentCall call(problems, beta_rows, dtype, spread, packed);
  const int64_t B = call.batch, T = call.seq_len;
  const auto like = [&](int64_t heads, int64_t width, DType type) {
    return GuardedTensor(B, T, heads, width, type, spread);
  };
  GuardedTensor grad_out = like(p0.value_heads, p0.d_value, dtype);
  GuardedTensor dq = like(p0.heads, p0.d_key, dtype);
  GuardedTensor dk = like(p0.heads, p0.d_key, dtype);
  GuardedTensor dv = like(p0.value_heads, p0.d_value, dtype);
  GuardedTensor dg =
      like(p0.value_heads, call.gates.view().size[3], DType::kF32);
  GuardedTensor db = like(p0.value_heads, 1, DType::kF32);
  const int64_t size = p0.value_heads * p0.d_key * p0.d_value;
  std::vector<float> grad_S, dS(call.count * size, PoisonFloat());
  std::vector<float> d_head(p0.value_heads, PoisonFloat());
  std::vector<float> d_bonus(p0.value_heads * p0.d_key, PoisonFloat());
  for (int64_t n = 0; n < call.count; ++n) {
    grad_out.Fill(call.Row(n), call.Start(n), losses[n].out);
    grad_S.insert(grad_S.end(), losses[n].S.begin(), losses[n].S.end());
  }
  RecurrentGradients grad;
  grad.checkpoints = checkpoints == nullptr ? nullptr : checkpoints->data();
  grad.grad_out = grad_out.view();
  grad.grad_final_state = states ? grad_S.data() : nullptr;
  grad.grad_queries = dq.view();
  grad.grad_keys = dk.view();
  grad.grad_values = dv.view();
  if (call.in.HasGates()) grad.grad_gates = dg.view();
  if (!beta_rows.empty()) grad.grad_betas = db.view();
  if (p0.gate_kind == Gate::kHead) grad.grad_head_gates = d_head.data();
  if (!p0.bonus.empty()) grad.grad_bonus = d_bonus.data();
  grad.grad_initial_state = states ? dS.data() : nullptr;
  backward(call.options, call.in, grad, executor);
  for (const GuardedTensor* x : {&dq, &dk, &dv, &dg, &db}) {
    EXPECT_TRUE(x->GuardsIntact());
  }
  std::vector<RecurrentGradientOutcome> all(call.count);
  for (int64_t n = 0; n < call.count; ++n) {
    const int64_t b = call.Row(n), t0 = call.Start(n);
    const int64_t tokens = problems[n].seq_len;
    all[n].queries = dq.Read(b, t0, tokens);
    all[n].keys = dk.Read(b, t0, tokens);
    all[n].values = dv.Read(b, t0, tokens);
    if (call.in.HasGates()) all[n].gates = dg.Read(b, t0, tokens);
    if (!beta_rows.empty()) all[n].betas = db.Read(b, t0, tokens);
    all[n].S.assign(dS.begin() + n * size, dS.begin() + (n + 1) * size);
    for (int64_t t = tokens; !packed && t < T; ++t) {
      std::vector<const GuardedTensor*> written = {&dq, &dk, &dv};
      if (call.in.HasGates()) written.push_back(&dg);
      if (!beta_rows.empty()) written.push_back(&db);
      for (const GuardedTensor* x : written) {
        for (double value : x->Read(n, t, 1)) EXPECT_EQ(0.0, value);
      }
    }
  }
  if (p0.gate_kind == Gate::kHead) {
    all[0].gates.assign(d_head.begin(), d_head.end());
  }
  if (!p0.bonus.empty()) all[0].bonus = d_bonus;
  return all;
}

inline bool SameGradients(const RecurrentGradientOutcome& a,
                          const RecurrentGradientOutcome& b) {
  return SameVectorBits(a.queries, b.queries) &&
         SameVectorBits(a.keys, b.keys) && SameVectorBits(a.values, b.values) &&
         SameVectorBits(a.gates, b.gates) && SameVectorBits(a.betas, b.betas) &&
         SameVectorBits(a.S, b.S) && SameVectorBits(a.bonus, b.bonus);
}

}  // namespace tarn::testing
