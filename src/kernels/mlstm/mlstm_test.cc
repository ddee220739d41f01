// Gates and quotients against the double reference on every SIMD target, both
// passes; the cell around decay_attention against exponentials without a
// maximum; and the arguments.
#include "kernels/mlstm/mlstm.h"

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/decay/decay_attention.h"
#include "kernels/mlstm/mlstm_ref.h"
#include "kernels/row_tests.h"

namespace tarn::testing {
namespace {

using Problem = reference::MlstmGatesProblem;

class MlstmTest : public SimdTargetTest {};

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

std::vector<float> FloatsOf(const std::vector<double>& x) {
  return std::vector<float>(x.begin(), x.end());
}

Problem MakeGates(int64_t tokens, int64_t heads, DType dtype, double softcap,
                  bool marked, uint64_t seed) {
  std::mt19937_64 rng(seed + tokens + 100 * heads);
  Problem p;
  p.heads = heads;
  p.p_i = RandomOf(dtype, tokens * heads, rng, 4);
  p.p_f = RandomOf(dtype, tokens * heads, rng, 3);
  p.b_i = RandomOf(DType::kF32, heads, rng);
  p.b_f = RandomOf(DType::kF32, heads, rng);
  p.maximum = RandomOf(DType::kF32, heads, rng);
  p.softcap = softcap;
  for (int64_t t = 0; marked && t < tokens; ++t) p.kept.push_back(t % 4 != 1);
  return p;
}

struct GatesOutcome {
  std::vector<std::vector<double>> gates, factors, maxima, p_i, p_f;
  std::vector<float> last, d_first, b_i, b_f;
  bool operator==(const GatesOutcome&) const = default;
};

// Sequences as rows of a batch or, packed, one after the other. Results begin
// as NaN, as do the tokens that are not kept.
struct GatesRun {
  std::vector<Problem>
      sequences;  // of one number of heads; biases of the first
  std::vector<std::vector<double>> dg, dw, dm;
  DType dtype;
  bool packed;

  GatesOutcome Run(Executor& executor, bool spread) const;
};

GatesOutcome GatesRun::Run(Executor& executor, bool spread) const {
  const int64_t heads = sequences[0].heads,
                count = static_cast<int64_t>(sequences.size());
  std::vector<int64_t> bounds = {0};
  for (const Problem& p : sequences) {
    bounds.push_back(bounds.back() +
                     static_cast<int64_t>(p.p_i.size()) / heads);
  }
  const int64_t batch = packed ? 1 : count,
                tokens = packed ? bounds.back() : bounds[1];
  const auto tensor = [&](DType type, bool apart) {
    return GuardedTensor(batch, tokens, 1, heads, type, apart);
  };
  GuardedTensor p_i = tensor(dtype, spread), p_f = tensor(dtype, false),
                g = tensor(DType::kF32, spread), w = tensor(DType::kF32, false),
                m = tensor(DType::kF32, false),
                d_g = tensor(DType::kF32, spread),
                d_w = tensor(DType::kF32, false),
                d_m = tensor(DType::kF32, spread), d_i = tensor(dtype, false),
                d_f = tensor(dtype, spread);
  const std::unique_ptr<bool[]> kept(new bool[batch * tokens + 1]());
  std::vector<float> first, b_i = FloatsOf(sequences[0].b_i),
                            b_f = FloatsOf(sequences[0].b_f);
  const auto place = [&](int64_t n, int64_t t) {
    return packed ? std::pair<int64_t, int64_t>(0, bounds[n] + t)
                  : std::pair<int64_t, int64_t>(n, t);
  };
  for (int64_t n = 0; n < count; ++n) {
    const Problem& p = sequences[n];
    for (const double value : p.maximum) {
      first.push_back(static_cast<float>(value));
    }
    for (int64_t t = 0; t < bounds[n + 1] - bounds[n]; ++t) {
      const auto [b, at] = place(n, t);
      const bool counts = p.kept.empty() || p.kept[t];
      kept[b * tokens + at] = counts;
      for (int64_t h = 0; h < heads; ++h) {
        const size_t e = static_cast<size_t>(t * heads + h);
        p_i.Set(b, at, 0, h, counts ? p.p_i[e] : NAN);
        p_f.Set(b, at, 0, h, counts ? p.p_f[e] : NAN);
        d_g.Set(b, at, 0, h, dg[n][e]);
        d_w.Set(b, at, 0, h, dw[n][e]);
        d_m.Set(b, at, 0, h, dm[n][e]);
      }
    }
  }
  MlstmGatesInputs in;
  in.input_gates = p_i.view();
  in.forget_gates = p_f.view();
  in.input_bias = b_i.data();
  in.forget_bias = b_f.data();
  in.softcap = static_cast<float>(sequences[0].softcap);
  in.kept = sequences[0].kept.empty() ? nullptr : kept.get();
  in.initial_maximum = first.data();
  if (packed) {
    in.cu_seqlens = bounds.data();
    in.sequences = count;
  }
  GatesOutcome found;
  found.last.assign(count * heads, kPoison);
  found.d_first.assign(count * heads, kPoison);
  found.b_i.assign(heads, kPoison);
  found.b_f.assign(heads, kPoison);
  MlstmGatesForward(in, {g.view(), w.view(), m.view(), found.last.data()},
                    executor);
  MlstmGatesGradients back;
  back.factors = w.view();
  back.maxima = m.view();
  back.grad_maxima = d_m.view();
  // Of the last m, 1 each.
  const std::vector<float> ones(count * heads, 1.0f);
  back.grad_final_maximum = ones.data();
  back.grad_initial_maximum = found.d_first.data();
  back.grad_gates = d_g.view();
  back.grad_factors = d_w.view();
  back.grad_input = d_i.view();
  back.grad_forget = d_f.view();
  back.grad_input_bias = found.b_i.data();
  back.grad_forget_bias = found.b_f.data();
  const Workspace workspace = MakeWorkspace(MlstmGradientBytes(in));
  MlstmGatesBackward(in, back, executor, workspace.get());
  for (const GuardedTensor* t : {&g, &w, &m, &d_i, &d_f}) {
    EXPECT_TRUE(t->GuardsIntact());
  }
  for (int64_t n = 0; n < count; ++n) {
    const auto read = [&](const GuardedTensor& x) {
      std::vector<double> rows;
      for (int64_t t = 0; t < bounds[n + 1] - bounds[n]; ++t) {
        const auto [b, at] = place(n, t);
        for (int64_t h = 0; h < heads; ++h) {
          rows.push_back(x.Get(b, at, 0, h));
        }
      }
      return rows;
    };
    found.gates.push_back(read(g));
    found.factors.push_back(read(w));
    found.maxima.push_back(read(m));
    found.p_i.push_back(read(d_i));
    found.p_f.push_back(read(d_f));
  }
  return found;
}

GatesRun MakeRun(const std::vector<int64_t>& lengths, int64_t heads,
                 DType dtype, double softcap, bool marked, bool packed) {
  GatesRun run;
  run.dtype = dtype;
  run.packed = packed;
  for (const int64_t tokens : lengths) {
    const uint64_t seed = run.sequences.size();
    run.sequences.push_back(
        MakeGates(tokens, heads, dtype, softcap, marked, 1000 * seed));
    run.sequences.back().b_i = run.sequences[0].b_i;
    run.sequences.back().b_f = run.sequences[0].b_f;
    std::mt19937_64 rng(seed);
    run.dg.push_back(RandomOf(DType::kF32, tokens * heads, rng));
    run.dw.push_back(RandomOf(DType::kF32, tokens * heads, rng));
    run.dm.push_back(RandomOf(DType::kF32, tokens * heads, rng));
  }
  return run;
}

void CheckGates(const GatesRun& run, bool spread) {
  SerialExecutor serial;
  const GatesOutcome got = run.Run(serial, spread);
  const size_t heads = static_cast<size_t>(run.sequences[0].heads);
  std::vector<double> b_i(heads), b_f(heads);
  // m is a sum over tokens, whose roundings the others inherit.
  const auto near = [&](const auto& x, const std::vector<double>& right,
                        DType type, const char* what) {
    const std::vector<double> numbers(x.begin(), x.end());
    const double size = Rms(right.data(), static_cast<int64_t>(right.size()));
    ExpectRounded(numbers, right, type, 2e-5 * (1 + size), what);
  };
  for (size_t n = 0; n < run.sequences.size(); ++n) {
    const Problem& p = run.sequences[n];
    const reference::MlstmGatesResult wanted = reference::MlstmGates(p);
    // The gradient of the last m joins that of the last token's.
    std::vector<double> dm = run.dm[n];
    for (size_t at = dm.size(); at > 0 && at + heads > dm.size(); --at) {
      dm[at - 1] += 1;
    }
    const Problem d =
        reference::MlstmGatesBackward(p, run.dg[n], run.dw[n], dm);
    const double none = dm.empty() ? 1 : 0;
    for (size_t h = 0; h < heads; ++h) {
      const double first = d.maximum[h] + none;
      EXPECT_NEAR(first, got.d_first[n * heads + h],
                  1e-4 * (1 + std::fabs(first)));
    }
    near(got.gates[n], wanted.gates, DType::kF32, "gates");
    near(got.factors[n], wanted.factors, DType::kF32, "factors");
    near(got.maxima[n], wanted.maxima, DType::kF32, "maxima");
    near(got.p_i[n], d.p_i, run.dtype, "input gates");
    near(got.p_f[n], d.p_f, run.dtype, "forget gates");
    for (size_t h = 0; h < heads; ++h) {
      const double last = wanted.maxima.empty()
                              ? p.maximum[h]
                              : wanted.maxima[wanted.maxima.size() - heads + h];
      EXPECT_NEAR(last, got.last[n * heads + h], 2e-5 * (1 + std::fabs(last)));
      b_i[h] += d.b_i[h];
      b_f[h] += d.b_f[h];
    }
  }
  near(got.b_i, b_i, DType::kF32, "input bias");
  near(got.b_f, b_f, DType::kF32, "forget bias");
}

TEST(MlstmReference, AgreesWithFiniteDifferences) {
  Problem p = MakeGates(7, 3, DType::kF32, 5, true, 3);
  std::mt19937_64 rng(1);
  const std::vector<double> dg = Random(21, rng), dw = Random(21, rng),
                            dm = Random(21, rng);
  const Problem d = reference::MlstmGatesBackward(p, dg, dw, dm);
  const auto value = [&] {
    const reference::MlstmGatesResult found = reference::MlstmGates(p);
    return Dot(found.gates, dg) + Dot(found.factors, dw) +
           Dot(found.maxima, dm);
  };
  ExpectSlopes(value, p.p_i, d.p_i);
  ExpectSlopes(value, p.p_f, d.p_f);
  ExpectSlopes(value, p.b_i, d.b_i);
  ExpectSlopes(value, p.b_f, d.b_f);
  ExpectSlopes(value, p.maximum, d.maximum);

  std::vector<double> y = Random(4 * 6, rng);
  std::vector<double> m = {-1, 0.5, 3, 40}, d_m;
  const std::vector<double> dh = Random(4 * 5, rng);
  const std::vector<double> dy =
      reference::MlstmReadBackward(y, m, 5, 1e-3, dh, d_m);
  // Quotients by exp(-40) have large slopes.
  const auto read = [&] {
    return Dot(reference::MlstmRead(y, m, 5, 1e-3), dh);
  };
  ExpectSlopes(read, y, dy, 1e-4);
  ExpectSlopes(read, m, d_m, 1e-4);
}

TEST_P(MlstmTest, GatesMatchTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t heads : {1, 3, 4, 17, 64}) {
      for (const double softcap : {0.0, 5.0}) {
        for (const bool marked : {false, true}) {
          CheckGates(MakeRun({9, 9, 9}, heads, dtype, softcap, marked, false),
                     true);
          CheckGates(
              MakeRun({5, 0, 1, 12}, heads, dtype, softcap, marked, true),
              false);
        }
      }
    }
    for (const int64_t tokens : {0, 1, 300}) {
      CheckGates(MakeRun({tokens, tokens}, 5, dtype, 15, false, false), true);
    }
  }
}

TEST_P(MlstmTest, ThreadsChangeNoBit) {
  const GatesRun run =
      MakeRun({500, 0, 700, 90}, 37, DType::kF32, 15, true, true);
  SerialExecutor serial;
  ExpectSameBits(run.Run(serial, false), [&](Executor& executor, bool spread) {
    return run.Run(executor, spread);
  });
}

// Any split of a sequence, with m in one place, in the memory of the inputs.
TEST_P(MlstmTest, SplitsAndPlacesChangeNoBit) {
  constexpr int64_t kTokens = 40, kHeads = 5;
  GatesRun run = MakeRun({kTokens}, kHeads, DType::kF32, 15, false, false);
  SerialExecutor serial;
  const GatesOutcome whole = run.Run(serial, false);
  const Problem& p = run.sequences[0];
  std::vector<float> p_i = FloatsOf(p.p_i), p_f = FloatsOf(p.p_f),
                     m(kTokens * kHeads), state = FloatsOf(p.maximum);
  const std::vector<float> b_i = FloatsOf(p.b_i), b_f = FloatsOf(p.b_f);
  for (int64_t t = 0; t < kTokens;) {
    const int64_t count = std::min<int64_t>(1 + t % 7, kTokens - t);
    const auto view = [&](std::vector<float>& x) {
      return TensorView::Dense(x.data() + t * kHeads, 1, count, 1, kHeads);
    };
    MlstmGatesInputs in;
    in.input_gates = view(p_i);
    in.forget_gates = view(p_f);
    in.input_bias = b_i.data();
    in.forget_bias = b_f.data();
    in.softcap = 15;
    in.initial_maximum = state.data();
    MlstmGatesForward(in, {view(p_f), view(p_i), view(m), state.data()},
                      serial);
    t += count;
  }
  EXPECT_EQ(FloatsOf(whole.gates[0]), p_f);
  EXPECT_EQ(FloatsOf(whole.factors[0]), p_i);
  EXPECT_EQ(FloatsOf(whole.maxima[0]), m);
  EXPECT_EQ(whole.last, state);
}

struct ReadOutcome {
  std::vector<float> h, d_read, d_maxima;
  bool operator==(const ReadOutcome&) const = default;
};

ReadOutcome RunRead(const std::vector<float>& y, const std::vector<float>& m,
                    const std::vector<float>& dh, int64_t width,
                    Executor& executor) {
  ReadOutcome found;
  found.h.assign(dh.size(), kPoison);
  found.d_read.assign(y.size(), kPoison);
  found.d_maxima.assign(m.size(), kPoison);
  const MlstmReadCall call = {static_cast<int64_t>(m.size()), width, y.data(),
                              m.data(), 1e-6f};
  MlstmReadForward(call, found.h.data(), executor);
  MlstmReadBackward(call, dh.data(), found.d_read.data(), found.d_maxima.data(),
                    executor);
  return found;
}

TEST_P(MlstmTest, ReadsMatchTheReference) {
  std::mt19937_64 rng(5);
  SerialExecutor serial;
  for (const int64_t width : {1, 3, 16, 65}) {
    for (const int64_t rows : {0, 1, 6, 700}) {
      const std::vector<double> y =
          RandomOf(DType::kF32, rows * (width + 1), rng);
      const std::vector<double> m = RandomOf(DType::kF32, rows, rng, 2);
      const std::vector<double> dh = RandomOf(DType::kF32, rows * width, rng);
      const ReadOutcome got =
          RunRead(FloatsOf(y), FloatsOf(m), FloatsOf(dh), width, serial);
      const auto near = [](const std::vector<float>& x,
                           const std::vector<double>& wanted) {
        const double size =
            Rms(wanted.data(), static_cast<int64_t>(wanted.size()));
        ExpectRounded(std::vector<double>(x.begin(), x.end()), wanted,
                      DType::kF32, 3e-6 * (1 + size), "reads");
      };
      near(got.h, reference::MlstmRead(y, m, width, 1e-6));
      std::vector<double> d_m;
      near(got.d_read,
           reference::MlstmReadBackward(y, m, width, 1e-6, dh, d_m));
      near(got.d_maxima, d_m);
    }
  }
  const std::vector<float> y(900 * 33, 0.5f), m(900, 0.25f), dh(900 * 32, 1.0f);
  ExpectSameBits(RunRead(y, m, dh, 32, serial), [&](Executor& executor, bool) {
    return RunRead(y, m, dh, 32, executor);
  });
}

// exp(-m) of 0 and of infinity.
TEST_P(MlstmTest, ReadsAtTheEnds) {
  SerialExecutor serial;
  const ReadOutcome found =
      RunRead({2, 4, 2, 0, 2, 4}, {200, 200, -200}, {1, 1, 1}, 1, serial);
  EXPECT_NEAR(0.5f, found.h[0], 1e-6);
  EXPECT_NEAR(2e6f, found.h[1], 1);
  EXPECT_EQ(0.0f, found.h[2]);
  for (const float v : found.d_read) EXPECT_TRUE(std::isfinite(v));
  for (const float v : found.d_maxima) EXPECT_TRUE(std::isfinite(v));
}

// Gates, values, the recurrence and quotients of one head in two calls.
TEST_P(MlstmTest, TheCellIsItsDefinition) {
  constexpr int64_t kTokens = 50, kKey = 7, kValue = 5;
  Problem p = MakeGates(kTokens, 1, DType::kF32, 8, false, 11);
  p.maximum = {0};
  std::mt19937_64 rng(2);
  const std::vector<double> q = RandomOf(DType::kF32, kTokens * kKey, rng),
                            k = RandomOf(DType::kF32, kTokens * kKey, rng),
                            v = RandomOf(DType::kF32, kTokens * kValue, rng);
  std::vector<double> i, kept, C(kKey * kValue), n(kKey);
  for (int64_t t = 0; t < kTokens; ++t) {
    i.push_back(8 * std::tanh((p.p_i[t] + p.b_i[0]) / 8));
    const double f = 8 * std::tanh((p.p_f[t] + p.b_f[0]) / 8);
    kept.push_back(-std::log1p(std::exp(-f)));
  }
  const std::vector<double> wanted =
      reference::MlstmCell(q, k, v, i, kept, 0.3, C, n);

  std::vector<float> queries = FloatsOf(q), keys = FloatsOf(k),
                     values = FloatsOf(v), p_i = FloatsOf(p.p_i),
                     p_f = FloatsOf(p.p_f), m(kTokens, kPoison),
                     taken(kTokens * (kValue + 1), kPoison), read = taken,
                     state(kKey * (kValue + 1), 0.0f), maximum = {0.0f},
                     h(kTokens * kValue, kPoison);
  const std::vector<float> b_i = FloatsOf(p.b_i), b_f = FloatsOf(p.b_f);
  SerialExecutor serial;
  for (const auto& [begin, end] : {std::pair{0, 17}, std::pair{17, 50}}) {
    const auto view = [&, begin = begin, end = end](std::vector<float>& x,
                                                    int64_t width) {
      return TensorView::Dense(x.data() + begin * width, 1, end - begin, 1,
                               width);
    };
    MlstmGatesInputs in;
    in.input_gates = view(p_i, 1);
    in.forget_gates = view(p_f, 1);
    in.input_bias = b_i.data();
    in.forget_bias = b_f.data();
    in.softcap = 8;
    in.initial_maximum = maximum.data();
    MlstmGatesForward(
        in, {view(p_f, 1), view(p_i, 1), view(m, 1), maximum.data()}, serial);
    for (int64_t t = begin; t < end; ++t) {
      MlstmValueRow(p_i[t], &values[t * kValue], kValue,
                    &taken[t * (kValue + 1)]);
    }
    RecurrentInputs cell;
    cell.queries = view(queries, kKey);
    cell.keys = view(keys, kKey);
    cell.values = view(taken, kValue + 1);
    cell.gates = view(p_f, 1);
    DecayAttentionStep({.scale = 0.3f}, cell,
                       {.state = state.data(), .next = state.data()},
                       view(read, kValue + 1), serial);
    for (int64_t t = begin; t < end; ++t) {
      MlstmReadRow(&read[t * (kValue + 1)], m[t], kValue, 0.0f, &h[t * kValue]);
    }
  }
  const double power = std::exp(maximum[0]);
  for (size_t at = 0; at < wanted.size(); ++at) {
    EXPECT_NEAR(wanted[at], h[at], 2e-5 * (1 + std::fabs(wanted[at])));
  }
  for (int64_t row = 0; row < kKey; ++row) {
    const float* got = &state[row * (kValue + 1)];
    const double room = 2e-5 * power;
    EXPECT_NEAR(n[row], got[kValue] * power, room);
    for (int64_t c = 0; c < kValue; ++c) {
      EXPECT_NEAR(C[row * kValue + c], got[c] * power, room);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, MlstmTest, ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(MlstmArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float x = 1.0f, y = 5.0f;
  const TensorView one = TensorView::Dense(&x, 1, 1, 1, 1),
                   to = TensorView::Dense(&y, 1, 1, 1, 1);
  MlstmGatesInputs in;
  in.input_gates = in.forget_gates = one;
  const auto where = [&](const MlstmGatesInputs& given,
                         const MlstmGatesOutputs& out) {
    return ErrorOf([&] { MlstmGatesForward(given, out, executor); }).where();
  };
  MlstmGatesInputs bad = in;
  bad.input_gates.size[2] = 2;
  EXPECT_EQ("mlstm: input_gates", where(bad, {to, to, to}));
  bad = in;
  bad.forget_gates.size[1] = 2;
  EXPECT_EQ("mlstm: forget_gates", where(bad, {to, to, to}));
  bad = in;
  bad.forget_gates.dtype = DType::kBF16;
  EXPECT_EQ("mlstm: forget_gates", where(bad, {to, to, to}));
  bad = in;
  bad.input_gates.data = nullptr;
  EXPECT_EQ("mlstm: input_gates", where(bad, {to, to, to}));
  for (const float cap : {-1.0f, kPoison}) {
    bad = in;
    bad.softcap = cap;
    EXPECT_EQ("mlstm: softcap", where(bad, {to, to, to}));
  }
  EXPECT_EQ("mlstm: factors", where(in, {to, {}, to}));
  EXPECT_EQ("mlstm: factors", ErrorOf([&] {
                                MlstmGatesBackward(in, {}, executor, nullptr);
                              }).where());
  EXPECT_EQ("mlstm: read", ErrorOf([&] {
                             MlstmReadForward({-1, 1}, &y, executor);
                           }).where());
  EXPECT_EQ("mlstm: h", ErrorOf([&] {
                          MlstmReadForward({1, 1, &x, &x}, nullptr, executor);
                        }).where());
  EXPECT_EQ("mlstm: grad_read",
            ErrorOf([&] {
              MlstmReadBackward({1, 1, &x, &x}, &x, nullptr, &y, executor);
            }).where());
  EXPECT_EQ(5.0f, y);
}

}  // namespace
}  // namespace tarn::testing
