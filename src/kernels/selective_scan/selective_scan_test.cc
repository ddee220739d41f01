// Forward pass and gradient against the double reference, on every SIMD target.
#include "kernels/selective_scan/selective_scan.h"

#include "core/error.h"
#include "kernels/aligned_buffer.h"
#include "kernels/linear_attention/test_problem.h"
#include "kernels/selective_scan/selective_scan_ref.h"

namespace tarn::testing {
namespace {

using reference::ScanProblem;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct ScanTypes {
  DType rows = DType::kF32, steps = DType::kF32;
};

// A problem and what flows into its gradient, rounded as the kernel sees them.
struct ScanCase {
  ScanProblem p;
  std::vector<double> grad_out, grad_state;
};

std::vector<double> RoundedTo(std::vector<double> x, DType dtype) {
  for (double& v : x) v = Round(v, dtype);
  return x;
}

ScanCase MakeScanCase(int64_t T, int64_t D, int64_t N, uint64_t seed,
                      ScanTypes types = {}, bool state = true) {
  std::mt19937_64 rng(seed);
  const auto floats = [&](int64_t count) {
    return RoundedTo(Random(count, rng), DType::kF32);
  };
  ScanCase made;
  ScanProblem& p = made.p;
  p.seq_len = T;
  p.channels = D;
  p.states = N;
  p.inputs = RoundedTo(Random(T * D, rng), types.rows);
  p.steps = Random(T * D, rng);
  for (double& step : p.steps) step = std::abs(step);
  p.steps = RoundedTo(p.steps, types.steps);
  p.rates = floats(D * N);
  for (double& rate : p.rates) rate = -std::abs(rate);
  p.keys = RoundedTo(Random(T * N, rng), types.rows);
  p.queries = RoundedTo(Random(T * N, rng), types.rows);
  if (seed % 2 == 0) p.skip = floats(D);
  if (state) p.state = floats(D * N);
  made.grad_out = RoundedTo(Random(T * D, rng), types.rows);
  made.grad_state = floats(D * N);
  return made;
}

struct ScanOutcome {
  std::vector<double> out, dx, dstep, dkeys, dqueries;
  std::vector<float> state, d_state;
  bool operator==(const ScanOutcome&) const = default;
};

struct ScanRun {
  std::vector<ScanOutcome> sequences;
  std::vector<float> d_rates, d_skip;  // sums over the sequences
};

std::vector<float> Narrow(const std::vector<double>& x) {
  return {x.begin(), x.end()};
}

// All cases, which share rates and skip weights, as one call, packed or padded,
// on strided and guarded tensors.
ScanRun RunScan(const std::vector<ScanCase>& cases, ScanTypes types,
                bool spread, bool packed, Executor& executor) {
  const ScanProblem& first = cases[0].p;
  const int64_t D = first.channels, N = first.states;
  const auto count = static_cast<int64_t>(cases.size());
  std::vector<int64_t> cu = {0}, lengths;
  std::vector<float> initial, grad_state;
  for (const ScanCase& one : cases) {
    cu.push_back(cu.back() + one.p.seq_len);
    lengths.push_back(one.p.seq_len);
    initial.insert(initial.end(), one.p.state.begin(), one.p.state.end());
    grad_state.insert(grad_state.end(), one.grad_state.begin(),
                      one.grad_state.end());
  }
  const int64_t rows =
      packed ? cu.back() : *std::max_element(lengths.begin(), lengths.end());
  const auto tensor = [&](int64_t width, DType dtype) {
    return GuardedTensor(packed ? 1 : count, rows, 1, width, dtype, spread);
  };
  const auto row = [&](int64_t n) { return packed ? 0 : n; };
  const auto start = [&](int64_t n) { return packed ? cu[n] : 0; };
  GuardedTensor inputs = tensor(D, types.rows), steps = tensor(D, types.steps),
                keys = tensor(N, types.rows), queries = tensor(N, types.rows),
                out = tensor(D, types.rows), grad_out = tensor(D, types.rows),
                dx = tensor(D, types.rows), dstep = tensor(D, types.steps),
                dkeys = tensor(N, types.rows), dqueries = tensor(N, types.rows);
  for (int64_t n = 0; n < count; ++n) {
    inputs.Fill(row(n), start(n), cases[n].p.inputs);
    steps.Fill(row(n), start(n), cases[n].p.steps);
    keys.Fill(row(n), start(n), cases[n].p.keys);
    queries.Fill(row(n), start(n), cases[n].p.queries);
    grad_out.Fill(row(n), start(n), cases[n].grad_out);
  }
  const std::vector<float> rates = Narrow(first.rates),
                           skip = Narrow(first.skip);
  SelectiveScanInputs in;
  in.inputs = inputs.view();
  in.steps = steps.view();
  in.rates = rates.data();
  in.keys = keys.view();
  in.queries = queries.view();
  in.skip = skip.empty() ? nullptr : skip.data();
  if (packed) {
    in.cu_seqlens = cu.data();
    in.sequences = count;
  } else if (count > 1) {
    in.lengths = lengths.data();
  }
  in.initial_state = initial.empty() ? nullptr : initial.data();
  std::vector<float> state(count * D * N, NAN), d_state(count * D * N, NAN);
  std::vector<float> saved(SelectiveScanCheckpoints(in) * D * N, NAN);
  SelectiveScanForward(in, {out.view(), state.data(), saved.data()}, executor);
  ScanRun run;
  run.d_rates.assign(D * N, NAN);
  run.d_skip.assign(D, NAN);
  AlignedBuffer<float> scratch(SelectiveScanScratch(in, executor.width()));
  std::fill_n(scratch.data(), SelectiveScanScratch(in, executor.width()), NAN);
  SelectiveScanBackward(
      in,
      {saved.data(), grad_out.view(), grad_state.data(), dx.view(),
       dstep.view(), dkeys.view(), dqueries.view(), run.d_rates.data(),
       run.d_skip.data(), d_state.data(), scratch.data()},
      executor);
  for (const GuardedTensor* x : {&out, &dx, &dstep, &dkeys, &dqueries}) {
    EXPECT_TRUE(x->GuardsIntact());
    for (int64_t n = 0; !packed && n < count; ++n) {
      for (double pad : x->Read(n, lengths[n], rows - lengths[n])) {
        EXPECT_EQ(0.0, pad);
      }
    }
  }
  for (int64_t n = 0; n < count; ++n) {
    const auto read = [&](const GuardedTensor& x) {
      return x.Read(row(n), start(n), lengths[n]);
    };
    const int64_t size = D * N;
    run.sequences.push_back(
        {read(out),
         read(dx),
         read(dstep),
         read(dkeys),
         read(dqueries),
         {state.begin() + n * size, state.begin() + (n + 1) * size},
         {d_state.begin() + n * size, d_state.begin() + (n + 1) * size}});
  }
  return run;
}

ScanRun RunScanAlone(const ScanCase& one, ScanTypes types = {},
                     bool spread = false) {
  SerialExecutor serial;
  return RunScan({one}, types, spread, false, serial);
}

void CheckScan(const ScanCase& one, ScanTypes types, bool spread,
               const std::string& what) {
  const ScanRun run = RunScanAlone(one, types, spread);
  const ScanOutcome& got = run.sequences[0];
  const auto ref = reference::ScanForward(one.p);
  const auto grad =
      reference::ScanBackward(one.p, one.grad_out, one.grad_state);
  const Tolerance t = OutputTolerance(types.rows),
                  g = GradientTolerance(types.rows),
                  steps = GradientTolerance(types.steps),
                  sums = GradientTolerance(DType::kF32);
  const auto wide = [](const std::vector<float>& x) {
    return std::vector<double>(x.begin(), x.end());
  };
  const double floor = 1;  // a row may be one number, and a state that cancels
  const int64_t D = one.p.channels, N = one.p.states;
  ExpectClose(got.out, ref.out, D, t.r, t.m, what + " out", floor);
  ExpectClose(wide(got.state), ref.state, D * N, 2e-6, 1e-5, what + " state",
              floor);
  ExpectClose(got.dx, grad.inputs, D, g.r, g.m, what + " dx", floor);
  ExpectClose(got.dstep, grad.steps, D, steps.r, steps.m, what + " dsteps",
              floor);
  ExpectClose(got.dkeys, grad.keys, N, g.r, g.m, what + " dkeys", floor);
  ExpectClose(got.dqueries, grad.queries, N, g.r, g.m, what + " dqueries",
              floor);
  ExpectClose(wide(run.d_rates), grad.rates, D * N, sums.r, sums.m,
              what + " drates", floor);
  ExpectClose(wide(run.d_skip), grad.skip, D, sums.r, sums.m, what + " dskip",
              floor);
  ExpectClose(wide(got.d_state), grad.state, D * N, sums.r, sums.m,
              what + " dstate", floor);
}

TEST(SelectiveScanReference, AgreesWithFiniteDifferences) {
  for (int64_t T : {1, 5}) {
    ScanCase one = MakeScanCase(T, 3, 2, 2);
    const auto g = reference::ScanBackward(one.p, one.grad_out, one.grad_state);
    const auto value = [&] {
      const auto r = reference::ScanForward(one.p);
      double sum = 0;
      for (size_t i = 0; i < r.out.size(); ++i) {
        sum += one.grad_out[i] * r.out[i];
      }
      for (size_t i = 0; i < r.state.size(); ++i) {
        sum += one.grad_state[i] * r.state[i];
      }
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
    check(one.p.inputs, g.inputs);
    check(one.p.steps, g.steps);
    check(one.p.rates, g.rates);
    check(one.p.keys, g.keys);
    check(one.p.queries, g.queries);
    check(one.p.skip, g.skip);
    check(one.p.state, g.state);
  }
}

class SelectiveScanTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(SelectiveScanTest, SizesMatchReference) {
  uint64_t seed = 0;
  for (int64_t T : {0, 1, 2, 15, 16, 17, 33, 50}) {
    for (int64_t D : {1, 3, 16, 33, 64, 100}) {
      for (int64_t N : {1, 3, 16, 21}) {
        ++seed;
        CheckScan(MakeScanCase(T, D, N, seed, {}, seed % 3 != 0), {},
                  seed / 2 % 2,
                  "T" + std::to_string(T) + " D" + std::to_string(D) + " N" +
                      std::to_string(N));
      }
    }
  }
  CheckScan(MakeScanCase(20, 70, kMostScanStates, 2), {}, true, "most states");
}

TEST_P(SelectiveScanTest, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (DType steps : {dtype, DType::kF32}) {
      for (uint64_t seed = 1; seed < 4; ++seed) {
        const ScanTypes types = {dtype, steps};
        CheckScan(MakeScanCase(40, 50, 16, seed, types), types, seed % 2,
                  DTypeName(dtype));
      }
    }
  }
}

TEST_P(SelectiveScanTest, FactorsOfAnySize) {
  for (double size : {-1e-3, -50.0, -87.1, -1e4, -1e30, 0.25}) {
    ScanCase one = MakeScanCase(20, 33, 4, 4);
    for (double& step : one.p.steps) step = 1;
    for (double& rate : one.p.rates) rate = static_cast<float>(size);
    CheckScan(one, {}, false, "rates of " + std::to_string(size));
  }
}

TEST_P(SelectiveScanTest, PackedEqualsPaddedEqualsAloneBitwise) {
  SerialExecutor serial;
  ThreadPool pool(3);
  std::vector<ScanCase> cases;
  for (int64_t T : {5, 0, 1, 60, 33, 16, 2}) {
    cases.push_back(MakeScanCase(T, 100, 5, 10 + 2 * T));
    cases.back().p.rates = cases[0].p.rates;
    cases.back().p.skip = cases[0].p.skip;
  }
  const ScanRun packed = RunScan(cases, {}, true, true, pool);
  const ScanRun padded = RunScan(cases, {}, false, false, serial);
  for (size_t n = 0; n < cases.size(); ++n) {
    const ScanOutcome alone = RunScanAlone(cases[n]).sequences[0];
    EXPECT_TRUE(packed.sequences[n] == alone) << n;
    EXPECT_TRUE(padded.sequences[n] == alone) << n;
  }
  EXPECT_EQ(packed.d_rates, padded.d_rates);
  EXPECT_EQ(packed.d_skip, padded.d_skip);
}

TEST_P(SelectiveScanTest, ThreadsAndOrderChangeNoBit) {
  const ScanCase one = MakeScanCase(90, 200, 16, 2);
  const ScanRun alone = RunScanAlone(one);
  const auto same = [&](Executor& executor) {
    const ScanRun run = RunScan({one}, {}, false, false, executor);
    EXPECT_TRUE(alone.sequences == run.sequences);
    EXPECT_EQ(alone.d_rates, run.d_rates);
    EXPECT_EQ(alone.d_skip, run.d_skip);
  };
  for (int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    same(pool);
  }
  ReversedExecutor reversed;
  same(reversed);
}

TEST_P(SelectiveScanTest, StepsInPlaceGiveTheBitsOfTheWhole) {
  SerialExecutor serial;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ScanCase one = MakeScanCase(50, 70, 7, 2, {dtype, dtype});
    GuardedTensor inputs(1, 50, 1, 70, dtype, false), steps = inputs;
    GuardedTensor keys(1, 50, 1, 7, dtype, false), queries = keys;
    inputs.Fill(0, 0, one.p.inputs);
    steps.Fill(0, 0, one.p.steps);
    keys.Fill(0, 0, one.p.keys);
    queries.Fill(0, 0, one.p.queries);
    GuardedTensor whole(1, 50, 1, 70, dtype, false), parts = whole;
    const std::vector<float> rates = Narrow(one.p.rates);
    std::vector<float> state = Narrow(one.p.state), after(70 * 7, NAN);
    SelectiveScanInputs in;
    in.inputs = inputs.view();
    in.steps = steps.view();
    in.rates = rates.data();
    in.keys = keys.view();
    in.queries = queries.view();
    in.initial_state = state.data();
    SelectiveScanForward(in, {whole.view(), after.data()}, serial);
    for (int64_t t = 0, run = 1; t < 50; t += run, run = run % 20 + 7) {
      run = std::min(run, 50 - t);
      const auto part = [&](TensorView view) {
        view.data = view.Row(0, t, 0);
        view.size[1] = run;
        return view;
      };
      SelectiveScanInputs piece = in;
      piece.inputs = part(in.inputs);
      piece.steps = part(in.steps);
      piece.keys = part(in.keys);
      piece.queries = part(in.queries);
      SelectiveScanForward(piece, {part(parts.view()), state.data()}, serial);
    }
    EXPECT_EQ(after, state);
    EXPECT_EQ(whole.Read(0, 0, 50), parts.Read(0, 0, 50));
  }
}

TEST_P(SelectiveScanTest, OneBadChannelStaysAlone) {
  ScanCase one = MakeScanCase(30, 40, 3, 2);
  const ScanOutcome clean = RunScanAlone(one).sequences[0];
  one.p.inputs[5 * 40 + 3] = std::nan("");
  one.p.steps[9 * 40 + 7] = kInfinity * 0;
  const ScanOutcome run = RunScanAlone(one).sequences[0];
  for (int64_t t = 0; t < 30; ++t) {
    for (int64_t c = 0; c < 40; ++c) {
      const int64_t i = t * 40 + c;
      if ((c == 3 && t >= 5) || (c == 7 && t >= 9)) {
        EXPECT_TRUE(std::isnan(run.out[i]));
      } else {
        EXPECT_EQ(clean.out[i], run.out[i]);
      }
      if (c != 3 && c != 7) {
        EXPECT_EQ(clean.dx[i], run.dx[i]);
        EXPECT_EQ(clean.dstep[i], run.dstep[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SelectiveScanTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(SelectiveScanErrors, NameArgumentWantedAndGiven) {
  float data[512] = {0};
  SelectiveScanInputs in;
  in.inputs = in.steps = TensorView::Dense(data, 1, 2, 1, 4);
  in.keys = in.queries = TensorView::Dense(data, 1, 2, 1, 3);
  in.rates = data;
  const auto message = [&](const SelectiveScanInputs& i, TensorView out) {
    try {
      CheckSelectiveScan(i, out);
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ("accepted", message(in, in.inputs));
  SelectiveScanInputs bad = in;
  bad.inputs = TensorView::Dense(data, 1, 2, 2, 2);
  EXPECT_EQ(
      "selective_scan: inputs: want [B, T, 1, D] with D >= 1, got [1, 2, 2, 2]",
      message(bad, in.inputs));
  bad = in;
  bad.steps = TensorView::Dense(data, 1, 2, 1, 3);
  EXPECT_EQ("selective_scan: steps: want [1, 2, 1, 4], got [1, 2, 1, 3]",
            message(bad, in.inputs));
  bad = in;
  bad.keys = bad.queries = TensorView::Dense(data, 1, 2, 1, 129);
  EXPECT_EQ("selective_scan: keys: want 1 to 128 states, got 129",
            message(bad, in.inputs));
  bad = in;
  bad.queries = TensorView::Dense(data, 1, 2, 1, 2);
  EXPECT_EQ("selective_scan: queries: want [1, 2, 1, 3], got [1, 2, 1, 2]",
            message(bad, in.inputs));
  bad = in;
  bad.keys.dtype = DType::kBF16;
  EXPECT_EQ("selective_scan: keys: want F32, got BF16",
            message(bad, in.inputs));
  bad = in;
  bad.rates = nullptr;
  EXPECT_EQ("selective_scan: rates: want data, got a null pointer",
            message(bad, in.inputs));
  bad = in;
  const int64_t lengths[] = {3};
  bad.lengths = lengths;
  EXPECT_EQ("selective_scan: lengths[0]: want 0 to 2, got 3",
            message(bad, in.inputs));
  EXPECT_EQ("selective_scan: out: want [1, 2, 1, 4], got [1, 1, 1, 4]",
            message(in, TensorView::Dense(data, 1, 1, 1, 4)));
  SerialExecutor serial;
  try {
    SelectiveScanBackward(
        in,
        {nullptr, in.inputs, nullptr, in.inputs, in.steps, in.keys, in.queries},
        serial);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(
        "selective_scan: scratch: want SelectiveScanScratch() floats, got a "
        "null "
        "pointer",
        error.what());
  }
}

TEST(SelectiveScanErrors, EmptyBatchAndNoTokensAreFine) {
  SerialExecutor serial;
  for (auto [B, T] : {std::pair<int64_t, int64_t>{0, 5}, {2, 0}}) {
    std::vector<float> state(B * 6, 2.0f), after(B * 6, NAN), back(B * 6, NAN);
    std::vector<float> rates(6, -1.0f), d_rates(6, NAN), d_skip(3, NAN);
    SelectiveScanInputs in;
    in.inputs = in.steps = TensorView::Dense(nullptr, B, T, 1, 3);
    in.keys = in.queries = TensorView::Dense(nullptr, B, T, 1, 2);
    in.rates = rates.data();
    in.initial_state = state.data();
    SelectiveScanForward(in, {in.inputs, after.data()}, serial);
    EXPECT_EQ(state, after);
    AlignedBuffer<float> scratch(SelectiveScanScratch(in, 1));
    SelectiveScanBackward(in,
                          {nullptr, in.inputs, state.data(), in.inputs,
                           in.steps, in.keys, in.queries, d_rates.data(),
                           d_skip.data(), back.data(), scratch.data()},
                          serial);
    EXPECT_EQ(state, back);
    EXPECT_EQ(std::vector<float>(6, 0.0f), d_rates);
    EXPECT_EQ(std::vector<float>(3, 0.0f), d_skip);
  }
}

}  // namespace
}  // namespace tarn::testing
