// Test harness of the gated recurrences: random problems, and the operators run
// on them through strided, guarded, NaN-poisoned buffers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/linear_attention/test_problem.h"
#include "kernels/recurrence/decay_problem.h"
#include "kernels/recurrence/recurrent_inputs.h"

namespace tarn::testing {

using reference::DecayProblem;
using Gate = DecayProblem::Gate;

constexpr Gate kGateKinds[] = {Gate::kNone, Gate::kHead, Gate::kToken,
                               Gate::kChannel};

struct RecurrentShape {
  int64_t T = 1, heads = 1, value_heads = 1, d_key = 1, d_value = 1;
};

inline std::string RecurrentLabel(const RecurrentShape& s, Gate gate) {
  return "T" + std::to_string(s.T) + " H" + std::to_string(s.heads) + "/" +
         std::to_string(s.value_heads) + " K" + std::to_string(s.d_key) + " V" +
         std::to_string(s.d_value) + " gate " +
         std::to_string(static_cast<int>(gate));
}

// How random gates look: their size, and whether some are 0, -104, -1e4, -inf.
struct GateStyle {
  double size = 0.1;
  bool resets = false;
};

inline std::vector<double> RandomGates(int64_t n, const GateStyle& style,
                                       std::mt19937_64& rng) {
  std::vector<double> gates = Random(n, rng, style.size);
  for (double& g : gates) {
    g = static_cast<float>(-std::abs(g));
    const uint64_t draw = rng() % 32;
    if (draw == 0) g = 0;
    if (!style.resets) continue;
    if (draw == 1) g = -104;
    if (draw == 2) g = -1e4;
    if (draw == 3) g = -std::numeric_limits<double>::infinity();
  }
  return gates;
}

// Inputs are rounded to `dtype` first: the reference sees what the kernel sees.
inline DecayProblem MakeDecayProblem(const RecurrentShape& shape, Gate gate,
                                     uint64_t seed, DType dtype = DType::kF32,
                                     const GateStyle& style = {},
                                     bool state = true, bool bonus = false) {
  std::mt19937_64 rng(seed);
  DecayProblem p;
  p.seq_len = shape.T;
  p.heads = shape.heads;
  p.value_heads = shape.value_heads;
  p.d_key = shape.d_key;
  p.d_value = shape.d_value;
  p.scale = seed % 2 == 0 ? 1.0 : 0.375;
  p.gate_kind = gate;
  p.queries = Random(p.seq_len * p.heads * p.d_key, rng);
  p.keys = Random(p.seq_len * p.heads * p.d_key, rng);
  p.values = Random(p.seq_len * p.value_heads * p.d_value, rng);
  for (auto* part : {&p.queries, &p.keys, &p.values}) {
    for (double& x : *part) x = Round(x, dtype);
  }
  const int64_t per_token =
      p.value_heads * (gate == Gate::kChannel ? p.d_key : 1);
  if (gate == Gate::kHead) {
    p.gates = RandomGates(p.value_heads, style, rng);
  } else if (gate != Gate::kNone) {
    p.gates = RandomGates(p.seq_len * per_token, style, rng);
  }
  if (bonus) {
    p.bonus = Random(p.value_heads * p.d_key, rng);
    for (double& x : p.bonus) x = static_cast<float>(x);
  }
  if (state) {
    p.S = Random(p.value_heads * p.d_key * p.d_value, rng);
    for (double& x : p.S) x = static_cast<float>(x);
  }
  return p;
}

// Problems of one shape as the inputs of one call: batch rows (shorter ones
// padded, with lengths), or packed along time. Holds the tensors that `in`
// points to. betas: one vector a problem, or none.
struct RecurrentCall {
  bool packed;
  int64_t count, batch, seq_len;
  std::vector<int64_t> cu, lengths;
  GuardedTensor queries, keys, values, gates, betas;
  std::vector<float> head_gates, bonus, S;
  RecurrentInputs in;
  RecurrentOptions options;

  RecurrentCall(const std::vector<DecayProblem>& problems,
                const std::vector<std::vector<double>>& beta_rows, DType dtype,
                bool spread, bool is_packed, DType gate_dtype = DType::kF32)
      : packed(is_packed),
        count(static_cast<int64_t>(problems.size())),
        batch(packed ? 1 : count),
        seq_len(Tokens(problems, is_packed)),
        queries(batch, seq_len, problems[0].heads, problems[0].d_key, dtype,
                spread),
        keys(batch, seq_len, problems[0].heads, problems[0].d_key, dtype,
             spread),
        values(batch, seq_len, problems[0].value_heads, problems[0].d_value,
               dtype, spread),
        gates(batch, seq_len, problems[0].value_heads,
              problems[0].gate_kind == Gate::kChannel ? problems[0].d_key : 1,
              gate_dtype, spread),
        betas(batch, seq_len, problems[0].value_heads, 1, DType::kF32, spread) {
    const DecayProblem& p0 = problems[0];
    cu = {0};
    bool ragged = false;
    for (int64_t n = 0; n < count; ++n) {
      const DecayProblem& p = problems[n];
      cu.push_back(cu.back() + p.seq_len);
      lengths.push_back(p.seq_len);
      ragged = ragged || p.seq_len != seq_len;
      queries.Fill(Row(n), Start(n), p.queries);
      keys.Fill(Row(n), Start(n), p.keys);
      values.Fill(Row(n), Start(n), p.values);
      if (p.gate_kind == Gate::kToken || p.gate_kind == Gate::kChannel) {
        gates.Fill(Row(n), Start(n), p.gates);
      }
      if (!beta_rows.empty()) betas.Fill(Row(n), Start(n), beta_rows[n]);
      S.insert(S.end(), p.S.begin(), p.S.end());
    }
    options.scale = static_cast<float>(p0.scale);
    in.queries = queries.view();
    in.keys = keys.view();
    in.values = values.view();
    if (p0.gate_kind == Gate::kHead) {
      head_gates.assign(p0.gates.begin(), p0.gates.end());
      in.head_gates = head_gates.data();
    } else if (p0.gate_kind != Gate::kNone) {
      in.gates = gates.view();
    }
    if (!beta_rows.empty()) in.betas = betas.view();
    if (!p0.bonus.empty()) {
      bonus.assign(p0.bonus.begin(), p0.bonus.end());
      in.bonus = bonus.data();
    }
    if (packed) {
      in.cu_seqlens = cu.data();
      in.sequences = count;
    } else if (ragged) {
      in.lengths = lengths.data();
    }
    in.initial_state = S.empty() ? nullptr : S.data();
  }
  RecurrentCall(const RecurrentCall&) = delete;
  RecurrentCall& operator=(const RecurrentCall&) = delete;

  int64_t Row(int64_t n) const { return packed ? 0 : n; }
  int64_t Start(int64_t n) const { return packed ? cu[n] : 0; }

  static int64_t Tokens(const std::vector<DecayProblem>& problems,
                        bool packed) {
    int64_t sum = 0, most = 0;
    for (const DecayProblem& p : problems) {
      sum += p.seq_len;
      most = std::max(most, p.seq_len);
    }
    return packed ? sum : most;
  }
};

struct RecurrentOutcome {
  std::vector<double> out;
  std::vector<float> S;
};

template <class T>
bool SameVectorBits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() &&
         (x.empty() ||
          std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
}

inline bool SameOutcome(const RecurrentOutcome& a, const RecurrentOutcome& b) {
  return SameVectorBits(a.out, b.out) && SameVectorBits(a.S, b.S);
}

inline std::vector<double> WideFloats(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

// The float that poisons memory.
inline float PoisonFloat() { return std::numeric_limits<float>::quiet_NaN(); }

// Runs `forward(options, in, outputs, executor)`, which brings the workspace.
template <class F>
std::vector<RecurrentOutcome> RunRecurrent(
    const std::vector<DecayProblem>& problems,
    const std::vector<std::vector<double>>& betas, DType dtype, bool spread,
    bool packed, Executor& executor, const F& forward, bool states = true,
    std::vector<float>* checkpoints = nullptr) {
  const DecayProblem& p0 = problems[0];
  const RecurrentCall call(problems, betas, dtype, spread, packed);
  GuardedTensor out(call.batch, call.seq_len, p0.value_heads, p0.d_value, dtype,
                    spread);
  const int64_t size = p0.value_heads * p0.d_key * p0.d_value;
  std::vector<float> S(call.count * size, PoisonFloat());
  RecurrentOutputs outputs{out.view(), states ? S.data() : nullptr, nullptr};
  if (checkpoints != nullptr) {
    checkpoints->assign(RecurrentCheckpoints(call.in) * size, PoisonFloat());
    outputs.checkpoints = checkpoints->data();
  }
  forward(call.options, call.in, outputs, executor);
  EXPECT_TRUE(out.GuardsIntact());
  std::vector<RecurrentOutcome> runs(call.count);
  for (int64_t n = 0; n < call.count; ++n) {
    runs[n].out = out.Read(call.Row(n), call.Start(n), problems[n].seq_len);
    runs[n].S.assign(S.begin() + n * size, S.begin() + (n + 1) * size);
    // Padding is zero.
    for (int64_t t = problems[n].seq_len; !packed && t < call.seq_len; ++t) {
      for (double x : out.Read(n, t, 1)) EXPECT_EQ(0.0, x);
    }
  }
  return runs;
}

}  // namespace tarn::testing
