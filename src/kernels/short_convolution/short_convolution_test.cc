// Forward pass and gradient against the double reference, on every SIMD target.
#include "kernels/short_convolution/short_convolution.h"

#include "core/error.h"
#include "kernels/linear_attention/test_problem.h"
#include "kernels/short_convolution/short_convolution_ref.h"

namespace tarn::testing {
namespace {

using reference::ConvolutionProblem;

std::vector<double> Floats(int64_t n, std::mt19937_64& rng) {
  std::vector<double> x = Random(n, rng);
  for (double& v : x) v = static_cast<float>(v);
  return x;
}

ConvolutionProblem MakeConvolution(int64_t T, int64_t D, int64_t W,
                                   uint64_t seed, DType dtype = DType::kF32,
                                   bool state = true) {
  std::mt19937_64 rng(seed);
  ConvolutionProblem p;
  p.seq_len = T;
  p.channels = D;
  p.width = W;
  p.silu = seed % 3 != 0;
  p.inputs = Random(T * D, rng);
  for (double& x : p.inputs) x = Round(x, dtype);
  std::mt19937_64 weights(7 + D + W);  // the same for all of a batch
  p.weights = Floats(D * W, weights);
  if (seed % 4 != 1) p.bias = Floats(D, weights);
  if (state) p.state = Floats((W - 1) * D, rng);
  return p;
}

struct ConvolutionCall {
  bool packed;
  std::vector<int64_t> cu = {0}, lengths;
  int64_t batch, seq_len;
  GuardedTensor inputs;
  std::vector<float> weights, bias, state;
  ShortConvolutionInputs in;

  ConvolutionCall(const std::vector<ConvolutionProblem>& problems, DType dtype,
                  bool spread, bool is_packed)
      : packed(is_packed),
        batch(is_packed ? 1 : static_cast<int64_t>(problems.size())),
        seq_len(Tokens(problems, is_packed)),
        inputs(batch, seq_len, 1, problems[0].channels, dtype, spread),
        weights(problems[0].weights.begin(), problems[0].weights.end()),
        bias(problems[0].bias.begin(), problems[0].bias.end()) {
    for (size_t n = 0; n < problems.size(); ++n) {
      const ConvolutionProblem& p = problems[n];
      cu.push_back(cu.back() + p.seq_len);
      lengths.push_back(p.seq_len);
      inputs.Fill(Row(n), Start(n), p.inputs);
      state.insert(state.end(), p.state.begin(), p.state.end());
    }
    in.inputs = inputs.view();
    in.weights = weights.data();
    in.bias = bias.empty() ? nullptr : bias.data();
    in.width = problems[0].width;
    in.activation = problems[0].silu ? ConvolutionActivation::kSilu
                                     : ConvolutionActivation::kNone;
    if (packed) {
      in.cu_seqlens = cu.data();
      in.sequences = static_cast<int64_t>(problems.size());
    } else if (problems.size() > 1) {
      in.lengths = lengths.data();
    }
    in.initial_state = state.empty() ? nullptr : state.data();
  }
  ConvolutionCall(const ConvolutionCall&) = delete;
  int64_t Row(size_t n) const { return packed ? 0 : static_cast<int64_t>(n); }
  int64_t Start(size_t n) const { return packed ? cu[n] : 0; }
  static int64_t Tokens(const std::vector<ConvolutionProblem>& problems,
                        bool packed) {
    int64_t sum = 0, most = 0;
    for (const ConvolutionProblem& p : problems) {
      sum += p.seq_len;
      most = std::max(most, p.seq_len);
    }
    return packed ? sum : most;
  }
};

struct ConvolutionOutcome {
  std::vector<double> out, dx;
  std::vector<float> state, d_state, dw, db;
};

std::vector<ConvolutionOutcome> RunConvolution(
    const std::vector<ConvolutionProblem>& problems,
    const std::vector<std::vector<double>>& grad_outs,
    const std::vector<float>& grad_state, DType dtype, bool spread, bool packed,
    Executor& executor) {
  const ConvolutionCall call(problems, dtype, spread, packed);
  const ConvolutionProblem& p0 = problems[0];
  const int64_t D = p0.channels, W = p0.width;
  GuardedTensor out(call.batch, call.seq_len, 1, D, dtype, spread);
  GuardedTensor grad_out(call.batch, call.seq_len, 1, D, dtype, spread);
  GuardedTensor dx(call.batch, call.seq_len, 1, D, dtype, spread);
  const size_t size = static_cast<size_t>((W - 1) * D);
  std::vector<float> state(problems.size() * size, NAN);
  std::vector<float> d_state(state.size(), NAN), dw(D * W, NAN), db(D, NAN);
  ShortConvolutionForward(call.in, out.view(), state.data(), executor);
  for (size_t n = 0; n < problems.size(); ++n) {
    grad_out.Fill(call.Row(n), call.Start(n), grad_outs[n]);
  }
  const Workspace workspace =
      MakeWorkspace(ShortConvolutionGradientBytes(call.in));
  ShortConvolutionBackward(
      call.in,
      {grad_out.view(), grad_state.empty() ? nullptr : grad_state.data(),
       dx.view(), dw.data(), db.data(), d_state.data()},
      executor, workspace.get());
  EXPECT_TRUE(out.GuardsIntact());
  EXPECT_TRUE(dx.GuardsIntact());
  std::vector<ConvolutionOutcome> runs;
  for (size_t n = 0; n < problems.size(); ++n) {
    const int64_t T = problems[n].seq_len;
    runs.push_back(
        {out.Read(call.Row(n), call.Start(n), T),
         dx.Read(call.Row(n), call.Start(n), T),
         {state.begin() + n * size, state.begin() + (n + 1) * size},
         {d_state.begin() + n * size, d_state.begin() + (n + 1) * size},
         dw,
         db});
    for (int64_t t = T; !packed && t < call.seq_len; ++t) {
      for (const GuardedTensor* x : {&out, &dx}) {
        for (double v : x->Read(static_cast<int64_t>(n), t, 1)) {
          EXPECT_EQ(0.0, v);
        }
      }
    }
  }
  return runs;
}

bool SameBits(const ConvolutionOutcome& a, const ConvolutionOutcome& b,
              bool sums) {
  return a.out == b.out && a.dx == b.dx && a.state == b.state &&
         a.d_state == b.d_state && (!sums || (a.dw == b.dw && a.db == b.db));
}

void Check(const ConvolutionProblem& p, uint64_t seed, DType dtype, bool spread,
           const std::string& what) {
  std::mt19937_64 rng(seed + 100);
  std::vector<double> grad_out = Random(p.seq_len * p.channels, rng);
  for (double& x : grad_out) x = Round(x, dtype);
  const std::vector<double> grad_state =
      Floats((p.width - 1) * p.channels, rng);
  SerialExecutor serial;
  const ConvolutionOutcome got =
      RunConvolution({p}, {grad_out}, {grad_state.begin(), grad_state.end()},
                     dtype, spread, false, serial)[0];
  const auto ref = reference::ConvolutionForward(p);
  const auto grad = reference::ConvolutionBackward(p, grad_out, grad_state);
  const Tolerance t = OutputTolerance(dtype), g = GradientTolerance(dtype);
  const auto wide = [](const std::vector<float>& x) {
    return std::vector<double>(x.begin(), x.end());
  };
  // Sums of a few terms cancel, and a row may be one number.
  const double floor = 1;
  ExpectClose(got.out, ref.out, p.channels, t.r, t.m, what + " out", floor);
  EXPECT_EQ(wide(got.state), ref.state) << what;
  ExpectClose(got.dx, grad.inputs, p.channels, g.r, g.m, what + " dx", floor);
  ExpectClose(wide(got.dw), grad.weights, p.width, 3e-6, 1e-4, what + " dw",
              floor);
  ExpectClose(wide(got.db), grad.bias, p.channels, 3e-6, 1e-4, what + " db",
              floor);
  ExpectClose(wide(got.d_state), grad.state, p.channels, 3e-6, 1e-4,
              what + " dstate", floor);
}

TEST(ShortConvolutionReference, AgreesWithFiniteDifferences) {
  for (int64_t T : {1, 6}) {
    ConvolutionProblem p = MakeConvolution(T, 3, 4, 2);
    std::mt19937_64 rng(1);
    const std::vector<double> go = Random(T * 3, rng), gs = Random(9, rng);
    const auto g = reference::ConvolutionBackward(p, go, gs);
    const auto value = [&] {
      const auto r = reference::ConvolutionForward(p);
      double sum = 0;
      for (size_t i = 0; i < go.size(); ++i) sum += go[i] * r.out[i];
      for (size_t i = 0; i < gs.size(); ++i) sum += gs[i] * r.state[i];
      return sum;
    };
    const auto check = [&](std::vector<double>& x,
                           const std::vector<double>& dx) {
      ASSERT_EQ(x.size(), dx.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const double saved = x[i], h = 1e-6;
        x[i] = saved + h;
        const double up = value();
        x[i] = saved - h;
        const double down = value();
        x[i] = saved;
        EXPECT_NEAR((up - down) / (2 * h), dx[i],
                    1e-7 * std::max(1.0, std::abs(dx[i])));
      }
    };
    check(p.inputs, g.inputs);
    check(p.weights, g.weights);
    check(p.bias, g.bias);
    check(p.state, g.state);
  }
}

class ShortConvolutionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(ShortConvolutionTest, WidthsLengthsAndChannelsMatchReference) {
  uint64_t seed = 0;
  for (int64_t W = 2; W <= 8; ++W) {
    for (int64_t T : {0, 1, 2, 3, 7, 8, 40}) {
      for (int64_t D : {1, 3, 16, 33, 64, 100, 192}) {
        ++seed;
        Check(MakeConvolution(T, D, W, seed, DType::kF32, seed % 5 != 0), seed,
              DType::kF32, seed % 2,
              "W" + std::to_string(W) + " T" + std::to_string(T) + " D" +
                  std::to_string(D));
      }
    }
  }
}

TEST_P(ShortConvolutionTest, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (uint64_t seed = 1; seed < 5; ++seed) {
      Check(MakeConvolution(30, 50, 4, seed, dtype), seed, dtype, seed % 2,
            DTypeName(dtype));
    }
  }
}

TEST_P(ShortConvolutionTest, ManyTokensStayAccurate) {
  Check(MakeConvolution(3000, 20, 4, 2), 3, DType::kF32, false, "long");
}

TEST_P(ShortConvolutionTest, PackedEqualsPaddedEqualsAloneBitwise) {
  SerialExecutor serial;
  ThreadPool pool(3);
  std::vector<ConvolutionProblem> problems;
  std::vector<std::vector<double>> grad_outs;
  std::vector<float> grad_state;
  std::mt19937_64 rng(4);
  for (int64_t T : {5, 0, 1, 40, 2}) {
    problems.push_back(MakeConvolution(T, 100, 4, 2));
    grad_outs.push_back(Random(T * 100, rng));
    for (double& x : grad_outs.back()) x = static_cast<float>(x);
  }
  for (double x : Random(5 * 300, rng)) grad_state.push_back(float(x));
  const auto packed = RunConvolution(problems, grad_outs, grad_state,
                                     DType::kF32, true, true, pool);
  const auto padded = RunConvolution(problems, grad_outs, grad_state,
                                     DType::kF32, false, false, serial);
  EXPECT_EQ(packed[0].dw, padded[0].dw);
  for (size_t n = 0; n < problems.size(); ++n) {
    const std::vector<float> own(grad_state.begin() + 300 * n,
                                 grad_state.begin() + 300 * (n + 1));
    const auto alone = RunConvolution({problems[n]}, {grad_outs[n]}, own,
                                      DType::kF32, false, false, serial)[0];
    EXPECT_TRUE(SameBits(packed[n], alone, false)) << n;
    EXPECT_TRUE(SameBits(padded[n], alone, false)) << n;
  }
}

TEST_P(ShortConvolutionTest, ThreadsAndOrderChangeNoBit) {
  SerialExecutor serial;
  std::mt19937_64 rng(5);
  const ConvolutionProblem p = MakeConvolution(300, 200, 4, 2);
  std::vector<double> grad_out = Random(300 * 200, rng);
  const auto one =
      RunConvolution({p}, {grad_out}, {}, DType::kF32, false, false, serial)[0];
  for (int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_TRUE(SameBits(
        one,
        RunConvolution({p}, {grad_out}, {}, DType::kF32, false, false, pool)[0],
        true));
  }
  ReversedExecutor reversed;
  EXPECT_TRUE(SameBits(one,
                       RunConvolution({p}, {grad_out}, {}, DType::kF32, false,
                                      false, reversed)[0],
                       true));
}

TEST_P(ShortConvolutionTest, StepsInPlaceGiveTheBitsOfTheWhole) {
  SerialExecutor serial;
  const ConvolutionProblem p = MakeConvolution(12, 70, 4, 2);
  const ConvolutionCall call({p}, DType::kF32, false, false);
  GuardedTensor whole(1, 12, 1, 70, DType::kF32, false), steps = whole;
  std::vector<float> after(3 * 70, NAN), state = call.state;
  ShortConvolutionForward(call.in, whole.view(), after.data(), serial);
  for (int64_t t = 0, run = 1; t < 12; t += run, run = run % 3 + 1) {
    run = std::min(run, 12 - t);
    ShortConvolutionInputs in = call.in;
    TensorView out = steps.view();
    for (TensorView* view : {&in.inputs, &out}) {
      view->data = view->Row(0, t, 0);
      view->size[1] = run;
    }
    in.initial_state = state.data();
    ShortConvolutionForward(in, out, state.data(), serial);
  }
  EXPECT_EQ(whole.Read(0, 0, 12), steps.Read(0, 0, 12));
  EXPECT_EQ(after, state);
}

TEST_P(ShortConvolutionTest, OneBadChannelStaysAlone) {
  SerialExecutor serial;
  ConvolutionProblem p = MakeConvolution(20, 10, 4, 2);
  const std::vector<double> grad_out(200, 1.0);
  const auto clean =
      RunConvolution({p}, {grad_out}, {}, DType::kF32, false, false, serial)[0];
  p.inputs[5 * 10 + 3] = std::nan("");
  const auto run =
      RunConvolution({p}, {grad_out}, {}, DType::kF32, false, false, serial)[0];
  for (int64_t t = 0; t < 20; ++t) {
    for (int64_t c = 0; c < 10; ++c) {
      if (c == 3 && t >= 5 && t < 9) {
        EXPECT_TRUE(std::isnan(run.out[t * 10 + c]));
      } else {
        EXPECT_EQ(clean.out[t * 10 + c], run.out[t * 10 + c]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ShortConvolutionTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(ShortConvolutionErrors, NameArgumentWantedAndGiven) {
  float data[64] = {0};
  ShortConvolutionInputs in;
  in.inputs = TensorView::Dense(data, 1, 2, 1, 4);
  in.weights = data;
  in.width = 4;
  const auto message = [&](const ShortConvolutionInputs& i, TensorView out) {
    try {
      CheckShortConvolution(i, out);
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ("accepted", message(in, in.inputs));
  ShortConvolutionInputs bad = in;
  bad.width = 9;
  EXPECT_EQ("short_convolution: width: want 2 to 8, got 9",
            message(bad, in.inputs));
  bad = in;
  bad.inputs = TensorView::Dense(data, 1, 2, 2, 2);
  EXPECT_EQ(
      "short_convolution: inputs: want [B, T, 1, D] with D >= 1, got [1, 2, 2, "
      "2]",
      message(bad, in.inputs));
  EXPECT_EQ("short_convolution: out: want [1, 2, 1, 4], got [1, 1, 1, 4]",
            message(in, TensorView::Dense(data, 1, 1, 1, 4)));
  ShortConvolutionGradients grad;
  grad.grad_out = in.inputs;
  grad.grad_inputs = TensorView::Dense(data, 1, 1, 1, 4);
  SerialExecutor serial;
  try {
    ShortConvolutionBackward(in, grad, serial, nullptr);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(
        "short_convolution: grad_inputs: want [1, 2, 1, 4], got [1, 1, 1, 4]",
        error.what());
  }
}

TEST(ShortConvolutionErrors, EmptyBatchAndNoTokensAreFine) {
  SerialExecutor serial;
  for (auto [B, T] : {std::pair<int64_t, int64_t>{0, 5}, {2, 0}}) {
    ShortConvolutionInputs in;
    std::vector<float> weights(12, 1.0f), bias(3, 1.0f), dw(12, NAN),
        db(3, NAN);
    std::vector<float> state(B * 9, 2.0f), out(B * 9, NAN), d_state(B * 9, NAN);
    in.inputs = TensorView::Dense(nullptr, B, T, 1, 3);
    in.weights = weights.data();
    in.bias = bias.data();
    in.width = 4;
    in.initial_state = state.data();
    ShortConvolutionForward(in, in.inputs, out.data(), serial);
    EXPECT_EQ(state, out);
    const Workspace workspace =
        MakeWorkspace(ShortConvolutionGradientBytes(in));
    ShortConvolutionBackward(in,
                             {in.inputs, state.data(), in.inputs, dw.data(),
                              db.data(), d_state.data()},
                             serial, workspace.get());
    EXPECT_EQ(state, d_state);
    EXPECT_EQ(std::vector<float>(12, 0.0f), dw);
    EXPECT_EQ(std::vector<float>(3, 0.0f), db);
  }
}

}  // namespace
}  // namespace tarn::testing
