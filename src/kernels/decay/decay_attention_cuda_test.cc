// The CUDA kernels, compiled as C++ against the emulated device, against the
// double reference.
#include "kernels/decay/decay_attention_cuda.h"

#include "block.h"
#include "core/error.h"
#include "kernels/decay/decay_attention_ref.h"
#include "kernels/recurrence/test_gradients.h"
#include "kernels/recurrence/test_measures.h"

namespace tarn::testing {
namespace {

using reference::DecayGradients;
using reference::DecayResult;

// Of the table in docs/kernels.md: operands of products are rounded.
struct CudaTolerance {
  Tolerance out, state, gradient, gates;
};
CudaTolerance TolerancesOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return {{4e-3, 4e-2}, {4e-3, 4e-2}, {8e-3, 6e-2}, {1.5e-2, 1e-1}};
    case DType::kF16:
      return {{1e-3, 1e-2}, {1e-3, 1e-2}, {2e-3, 2e-2}, {4e-3, 4e-2}};
    case DType::kF32:
      break;
  }
  return {{2e-6, 5e-5}, {2e-6, 5e-5}, {3e-6, 1e-4}, {1e-5, 2e-4}};
}

struct Outcome {
  std::vector<RecurrentOutcome> forward;
  std::vector<RecurrentGradientOutcome> gradient;
};

Outcome RunAll(const std::vector<DecayProblem>& problems,
               const std::vector<RecurrentLoss>& losses, DType dtype,
               bool spread, bool packed, bool states = true) {
  SerialExecutor serial;
  Outcome run;
  run.forward = RunRecurrent(
      problems, {}, dtype, spread, packed, serial,
      [](const RecurrentOptions& options, RecurrentInputs in,
         const RecurrentOutputs& outputs, Executor&) {
        in.on_device = true;
        const Workspace workspace =
            MakeWorkspace(DecayAttentionCudaWorkspaceBytes(in, false));
        DecayAttentionCudaForward(options, in, outputs, nullptr,
                                  workspace.get());
      },
      states);
  run.gradient = RunRecurrentGradients(
      problems, {}, losses, dtype, spread, packed, serial,
      [](const RecurrentOptions& options, RecurrentInputs in,
         const RecurrentGradients& gradients, Executor&) {
        in.on_device = true;
        const Workspace workspace =
            MakeWorkspace(DecayAttentionCudaGradientBytes(in, false));
        DecayAttentionCudaBackward(options, in, gradients, nullptr,
                                   workspace.get());
      },
      states);
  return run;
}

// Where gates close, rows are single products, which may cancel: they are
// measured against the size of their terms.
void Compare(const DecayProblem& p, const RecurrentLoss& loss,
             const RecurrentOutcome& run, const RecurrentGradientOutcome& got,
             DType dtype, bool states, const std::string& what) {
  const DecayResult ref = DecayForward(p);
  const DecayGradients grad =
      DecayBackward(p, loss.out, states ? loss.S : std::vector<double>());
  const CudaTolerance t = TolerancesOf(dtype);
  const auto rows = [&](const std::vector<double>& x,
                        const std::vector<double>& wanted, int64_t width,
                        Tolerance tolerance, const char* name) {
    const RowTolerance row = RowsOf(p, tolerance, dtype, wanted.size());
    ExpectClose(x, wanted, width, row.r, row.m, what + " " + name, row.floor);
  };
  rows(run.out, ref.out, p.d_value, t.out, "out");
  rows(got.queries, grad.queries, p.d_key, t.gradient, "dq");
  rows(got.keys, grad.keys, p.d_key, t.gradient, "dk");
  rows(got.values, grad.values, p.d_value, t.gradient, "dv");
  if (states) {
    rows(WideFloats(run.S), ref.S, p.d_value, t.state, "S");
    rows(WideFloats(got.S), grad.S, p.d_value, t.gradient, "dS");
  }
  if (p.gate_kind == Gate::kToken) {
    ExpectCloseByHead(got.gates, grad.gates, p.value_heads, 1, t.gates.r,
                      t.gates.m, what + " dg", 0.1);
  } else if (p.gate_kind == Gate::kHead && !got.gates.empty()) {
    const DecayGradients terms = DecayBackward(
        WithTokenGates(p), loss.out, states ? loss.S : std::vector<double>());
    ExpectCloseSums(got.gates, grad.gates, terms.gates, t.gates.r,
                    what + " head gates");
  }
}

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

void Check(const DecayProblem& p, uint64_t seed, DType dtype, bool spread,
           const std::string& what, bool states = true) {
  const RecurrentLoss loss = MakeRecurrentLoss(p, seed, dtype);
  const Outcome run = RunAll({p}, {loss}, dtype, spread, false, states);
  Compare(p, loss, run.forward[0], run.gradient[0], dtype, states,
          std::string(DTypeName(dtype)) + " " + what);
}

TEST(DecayAttentionCuda, LengthsMatchReference) {
  for (DType dtype : kTypes) {
    for (int64_t T : {0, 1, 2, 15, 63, 64, 65, 130}) {
      const DecayProblem p =
          MakeDecayProblem({T, 1, 1, 20, 33}, Gate::kToken, 7 + T, dtype);
      Check(p, T, dtype, T % 2, "T" + std::to_string(T));
    }
  }
}

TEST(DecayAttentionCuda, SegmentsAndGatesMatchReference) {
  int seed = 20;
  for (DType dtype : kTypes) {
    for (Gate gate : {Gate::kNone, Gate::kHead, Gate::kToken}) {
      for (double size : {0.01, 0.3}) {
        GateStyle style;
        style.size = size;
        ++seed;
        const int64_t T = gate == Gate::kToken ? 600 : 300;
        const DecayProblem p =
            MakeDecayProblem({T, 1, 2, 16, 24}, gate, seed, dtype, style);
        Check(p, seed, dtype, seed % 2, "segments " + std::to_string(seed),
              size == 0.3);
      }
    }
  }
}

TEST(DecayAttentionCuda, StrongGatesAndResetsMatchReference) {
  int seed = 40;
  for (DType dtype : kTypes) {
    for (double size : {1.0, 10.0}) {
      for (bool resets : {false, true}) {
        GateStyle style;
        style.size = size;
        style.resets = resets;
        ++seed;
        const DecayProblem p = MakeDecayProblem(
            {150, 1, 1, 20, 20}, Gate::kToken, seed, dtype, style);
        Check(p, seed, dtype, false, "gates " + std::to_string(seed));
      }
    }
  }
}

TEST(DecayAttentionCuda, WidthsAndGroupsMatchReference) {
  int seed = 60;
  for (auto [d_key, d_value] : {std::pair<int64_t, int64_t>{1, 1},
                                {3, 64},
                                {64, 3},
                                {65, 40},
                                {128, 128}}) {
    const DType dtype = kTypes[seed % 3];
    ++seed;
    const int64_t group = seed % 2 + 1;
    const DecayProblem p = MakeDecayProblem({70, 2, 2 * group, d_key, d_value},
                                            Gate::kToken, seed, dtype);
    Check(p, seed, dtype, seed % 2, "widths " + std::to_string(seed));
  }
}

TEST(DecayAttentionCuda, PackedAndPaddedMatchReference) {
  for (DType dtype : kTypes) {
    std::vector<DecayProblem> problems;
    std::vector<RecurrentLoss> losses;
    for (int64_t T : {15, 85, 0, 300, 1, 1, 33}) {
      problems.push_back(
          MakeDecayProblem({T, 1, 2, 20, 33}, Gate::kToken, 60 + T, dtype));
      problems.back().scale = 0.5;
      losses.push_back(MakeRecurrentLoss(problems.back(), T, dtype));
    }
    for (bool packed : {true, false}) {
      const Outcome run = RunAll(problems, losses, dtype, true, packed);
      for (size_t n = 0; n < problems.size(); ++n) {
        Compare(problems[n], losses[n], run.forward[n], run.gradient[n], dtype,
                true, (packed ? "packed " : "padded ") + std::to_string(n));
      }
    }
  }
}

// What checkpoints hold are the final states of a call on the tokens before.
TEST(DecayAttentionCuda, CheckpointsAreStates) {
  const DecayProblem p = MakeDecayProblem({600, 1, 2, 16, 12}, Gate::kToken, 3);
  SerialExecutor serial;
  std::vector<float> checkpoints;
  const auto forward = [](const RecurrentOptions& options, RecurrentInputs in,
                          const RecurrentOutputs& outputs, Executor&) {
    in.on_device = true;
    const Workspace workspace =
        MakeWorkspace(DecayAttentionCudaWorkspaceBytes(in, true));
    DecayAttentionCudaForward(options, in, outputs, nullptr, workspace.get());
  };
  RunRecurrent({p}, {}, DType::kF32, false, false, serial, forward, true,
               &checkpoints);
  const int64_t size = 2 * 16 * 12;
  ASSERT_EQ(static_cast<int64_t>(checkpoints.size()), 2 * size);
  for (int64_t n = 1; n <= 2; ++n) {
    DecayProblem before = p;
    before.seq_len = 256 * n;
    const DecayResult ref = DecayForward(before);
    const std::vector<double> state(checkpoints.begin() + (n - 1) * size,
                                    checkpoints.begin() + n * size);
    ExpectClose(state, ref.S, 12, 2e-6, 5e-5, "checkpoint", 0.1);
  }
}

TEST(DecayAttentionCuda, CheckpointsChangeNoBitOfGradients) {
  std::vector<DecayProblem> problems;
  std::vector<RecurrentLoss> losses;
  for (int64_t T : {300, 40, 600}) {
    problems.push_back(MakeDecayProblem({T, 1, 1, 12, 16}, Gate::kToken, T));
    problems.back().scale = 0.5;
    losses.push_back(MakeRecurrentLoss(problems.back(), T));
  }
  SerialExecutor serial;
  for (bool packed : {true, false}) {
    std::vector<float> checkpoints;
    RunRecurrent(
        problems, {}, DType::kF32, false, packed, serial,
        [](const RecurrentOptions& options, RecurrentInputs in,
           const RecurrentOutputs& outputs, Executor&) {
          in.on_device = true;
          const Workspace workspace =
              MakeWorkspace(DecayAttentionCudaWorkspaceBytes(in, true));
          DecayAttentionCudaForward(options, in, outputs, nullptr,
                                    workspace.get());
        },
        true, &checkpoints);
    const auto backward = [](const RecurrentOptions& options,
                             RecurrentInputs in,
                             const RecurrentGradients& gradients, Executor&) {
      in.on_device = true;
      const Workspace workspace = MakeWorkspace(DecayAttentionCudaGradientBytes(
          in, gradients.checkpoints != nullptr));
      DecayAttentionCudaBackward(options, in, gradients, nullptr,
                                 workspace.get());
    };
    const auto with =
        RunRecurrentGradients(problems, {}, losses, DType::kF32, false, packed,
                              serial, backward, true, &checkpoints);
    const auto without = RunRecurrentGradients(
        problems, {}, losses, DType::kF32, false, packed, serial, backward);
    for (size_t n = 0; n < problems.size(); ++n) {
      EXPECT_TRUE(SameGradients(with[n], without[n])) << n;
    }
  }
}

TEST(DecayAttentionCuda, StepsMatchReference) {
  for (DType dtype : kTypes) {
    for (Gate gate : {Gate::kNone, Gate::kHead, Gate::kToken}) {
      for (const auto& [d_key, d_value] : {std::pair{20, 33}, {64, 128}}) {
        const DecayProblem p =
            MakeDecayProblem({5, 1, 2, d_key, d_value}, gate, 3, dtype);
        const DecayResult ref = DecayForward(p);
        RecurrentCall call({p}, {}, dtype, true, false);
        // Row 0 reads slot 1 and writes slot 0 of two.
        const size_t size = call.S.size();
        std::vector<float> S(size, PoisonFloat());
        S.insert(S.end(), call.S.begin(), call.S.end());
        const int64_t read = 1, write = 0;
        call.in.initial_state = nullptr;
        call.in.on_device = true;
        GuardedTensor out(1, 5, 2, d_value, dtype, true);
        DecayAttentionCudaStep(call.options, call.in,
                               {S.data(), S.data(), &read, &write}, out.view(),
                               nullptr);
        EXPECT_TRUE(out.GuardsIntact());
        const Tolerance t = OutputTolerance(dtype);
        const Tolerance state = OutputTolerance(DType::kF32);
        ExpectClose(out.Read(0, 0, 5), ref.out, d_value, t.r, t.m, "step", 0.1);
        ExpectClose({S.begin(), S.begin() + static_cast<int64_t>(size)}, ref.S,
                    d_value, state.r, state.m, "step S", 0.1);
        const int64_t skip = -1;
        DecayAttentionCudaStep(call.options, call.in,
                               {S.data(), S.data(), &skip, &write}, out.view(),
                               nullptr);
        for (double x : out.Read(0, 0, 5)) EXPECT_EQ(x, 0.0);
      }
    }
  }
}

TEST(DecayAttentionCuda, EmptyBatchIsFine) {
  RecurrentInputs in;
  in.on_device = true;
  in.queries = in.keys = in.values = TensorView::Dense(nullptr, 0, 5, 2, 4);
  const float head_gates[2] = {-1.0f, -2.0f};
  in.head_gates = head_gates;
  DecayAttentionCudaForward({}, in, {in.values}, nullptr, nullptr);
  std::vector<float> d_head(2, PoisonFloat());
  RecurrentGradients grad;
  grad.grad_out = grad.grad_values = in.values;
  grad.grad_queries = grad.grad_keys = in.queries;
  grad.grad_head_gates = d_head.data();
  const Workspace workspace =
      MakeWorkspace(DecayAttentionCudaGradientBytes(in, false));
  DecayAttentionCudaBackward({}, in, grad, nullptr, workspace.get());
  EXPECT_EQ(d_head, std::vector<float>(2, 0.0f));
}

TEST(DecayAttentionCuda, RefusesWhatItDoesNotServe) {
  EXPECT_TRUE(DecayAttentionCudaServes(128, 128, false, false));
  EXPECT_FALSE(DecayAttentionCudaServes(129, 128, false, false));
  EXPECT_FALSE(DecayAttentionCudaServes(64, 64, true, false));
  EXPECT_FALSE(DecayAttentionCudaServes(64, 64, false, true));
  float data[64] = {0};
  RecurrentInputs in;
  in.queries = in.keys = in.values = TensorView::Dense(data, 1, 2, 2, 4);
  in.bonus = data;
  EXPECT_THROW(DecayAttentionCudaForward({}, in, {in.values}, nullptr, nullptr),
               ArgumentError);
}

}  // namespace
}  // namespace tarn::testing
