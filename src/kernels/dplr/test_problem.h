// Random problems with a low-rank pair for the tests of dplr_attention, and the
// operator run on them.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/dplr/dplr_attention.h"
#include "kernels/dplr/dplr_attention_ref.h"
#include "kernels/recurrence/step_stream.h"
#include "kernels/recurrence/test_gradients.h"
#include "kernels/recurrence/test_problem.h"

namespace tarn::testing {

using reference::DplrProblem;

// A problem with c and b as RWKV-7 makes them: c = -kappa of length 1 and
// b = kappa * alpha with alpha in (0, 1), so that the state stays bounded.
inline DplrProblem MakeDplrProblem(RecurrentShape shape, Gate gate,
                                   uint64_t seed, DType dtype = DType::kF32,
                                   const GateStyle& style = {},
                                   bool state = true) {
  DplrProblem problem;
  shape.value_heads = shape.heads;
  problem.inputs = MakeDecayProblem(shape, gate, seed, dtype, style, state);
  const DecayProblem& p = problem.inputs;
  std::mt19937_64 rng(seed + 9000);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  for (int64_t row = 0; row < p.seq_len * p.heads; ++row) {
    const std::vector<double> kappa = Random(p.d_key, rng);
    double sum = 1e-6;
    for (double x : kappa) sum += x * x;
    for (double x : kappa) {
      const double unit = x / std::sqrt(sum);
      problem.reads.push_back(Round(-unit, dtype));
      problem.writes.push_back(Round(unit * uniform(rng), dtype));
    }
  }
  return problem;
}

// The pair's tensors for problems as batch rows or packed, as RecurrentCall
// lays out the others, and their gradients.
class PairTensors {
 public:
  PairTensors(const std::vector<DplrProblem>& problems, DType dtype,
              bool spread, bool packed)
      : packed_(packed),
        reads(Make(problems, dtype, spread, packed)),
        writes(Make(problems, dtype, spread, packed)),
        grad_reads(Make(problems, dtype, spread, packed)),
        grad_writes(Make(problems, dtype, spread, packed)) {
    starts_.push_back(0);
    for (size_t n = 0; n < problems.size(); ++n) {
      const int64_t row = packed ? 0 : static_cast<int64_t>(n);
      const int64_t start = packed ? starts_.back() : 0;
      reads.Fill(row, start, problems[n].reads);
      writes.Fill(row, start, problems[n].writes);
      starts_.push_back(starts_.back() + problems[n].inputs.seq_len);
    }
  }
  RecurrentInputs Add(RecurrentInputs in) const {
    in.reads = reads.view();
    in.writes = writes.view();
    return in;
  }
  std::vector<double> Read(const GuardedTensor& x, int64_t n) const {
    return x.Read(packed_ ? 0 : n, packed_ ? starts_[n] : 0,
                  starts_[n + 1] - starts_[n]);
  }

 private:
  static GuardedTensor Make(const std::vector<DplrProblem>& problems,
                            DType dtype, bool spread, bool packed) {
    int64_t sum = 0, most = 0;
    for (const DplrProblem& p : problems) {
      sum += p.inputs.seq_len;
      most = std::max(most, p.inputs.seq_len);
    }
    return GuardedTensor(packed ? 1 : static_cast<int64_t>(problems.size()),
                         packed ? sum : most, problems[0].inputs.heads,
                         problems[0].inputs.d_key, dtype, spread);
  }
  bool packed_;
  std::vector<int64_t> starts_;

 public:
  GuardedTensor reads, writes, grad_reads, grad_writes;
};

inline std::vector<DecayProblem> InputsOf(
    const std::vector<DplrProblem>& problems) {
  std::vector<DecayProblem> inputs;
  for (const DplrProblem& p : problems) inputs.push_back(p.inputs);
  return inputs;
}

inline std::vector<RecurrentOutcome> RunDplr(
    const std::vector<DplrProblem>& problems, DType dtype, bool spread,
    bool packed, Executor& executor, bool states = true,
    std::vector<float>* checkpoints = nullptr) {
  const PairTensors pair(problems, dtype, spread, packed);
  return RunRecurrent(
      InputsOf(problems), {}, dtype, spread, packed, executor,
      [&](const auto& options, const auto& in, const auto& out,
          Executor& workers) {
        const RecurrentInputs with = pair.Add(in);
        const Workspace workspace =
            MakeWorkspace(DplrAttentionWorkspaceBytes(with, workers.width()));
        DplrAttentionForward(options, with, out, workers, workspace.get());
      },
      states, checkpoints);
}

struct DplrGradientOutcome {
  RecurrentGradientOutcome rest;
  std::vector<double> reads, writes;
};

inline std::vector<DplrGradientOutcome> RunDplrGradients(
    const std::vector<DplrProblem>& problems,
    const std::vector<RecurrentLoss>& losses, DType dtype, bool spread,
    bool packed, Executor& executor, bool states = true,
    const std::vector<float>* checkpoints = nullptr) {
  const PairTensors pair(problems, dtype, spread, packed);
  const auto rest = RunRecurrentGradients(
      InputsOf(problems), {}, losses, dtype, spread, packed, executor,
      [&](const auto& options, const auto& in, const auto& grad,
          Executor& workers) {
        const RecurrentInputs with = pair.Add(in);
        RecurrentGradients wanted = grad;
        wanted.grad_reads = pair.grad_reads.view();
        wanted.grad_writes = pair.grad_writes.view();
        const Workspace workspace = MakeWorkspace(DplrAttentionGradientBytes(
            with, workers.width(), grad.checkpoints != nullptr));
        DplrAttentionBackward(options, with, wanted, workers, workspace.get());
      },
      states, checkpoints);
  EXPECT_TRUE(pair.grad_reads.GuardsIntact());
  EXPECT_TRUE(pair.grad_writes.GuardsIntact());
  std::vector<DplrGradientOutcome> all;
  for (size_t n = 0; n < rest.size(); ++n) {
    const int64_t i = static_cast<int64_t>(n);
    all.push_back({rest[n], pair.Read(pair.grad_reads, i),
                   pair.Read(pair.grad_writes, i)});
  }
  return all;
}

inline bool SameDplrGradients(const DplrGradientOutcome& a,
                              const DplrGradientOutcome& b) {
  return SameGradients(a.rest, b.rest) && SameVectorBits(a.reads, b.reads) &&
         SameVectorBits(a.writes, b.writes);
}

inline RecurrentOutcome FeedDplr(const DplrProblem& p,
                                 const std::vector<int64_t>& runs, DType dtype,
                                 bool spread, Executor& executor) {
  const PairTensors pair({p}, dtype, spread, false);
  return FeedTokens(p.inputs, {}, runs, dtype, spread, executor,
                    DplrAttentionStep,
                    [&](const RecurrentInputs& in) { return pair.Add(in); });
}

}  // namespace tarn::testing
