// Forward pass and gradient against the double reference, on every SIMD target.
#include "kernels/elementwise_recurrence/elementwise_recurrence.h"

#include "core/error.h"
#include "kernels/elementwise_recurrence/elementwise_recurrence_ref.h"
#include "kernels/linear_attention/test_problem.h"

namespace tarn::testing {
namespace {

using reference::ElementwiseProblem;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Types {
  DType rows = DType::kF32, gates = DType::kF32;
};

// A problem and what flows into its gradient, rounded as the kernel sees them.
struct ElementwiseCase {
  ElementwiseProblem p;
  std::vector<double> grad_out, grad_state;
};

std::vector<double> Rounded(std::vector<double> x, DType dtype) {
  for (double& v : x) v = Round(v, dtype);
  return x;
}

ElementwiseCase MakeCase(int64_t T, int64_t D, uint64_t seed, Types types = {},
                         bool state = true) {
  std::mt19937_64 rng(seed);
  ElementwiseCase made;
  made.p.seq_len = T;
  made.p.channels = D;
  made.p.inputs = Rounded(Random(T * D, rng), types.rows);
  made.p.gates = Random(T * D, rng);
  for (double& g : made.p.gates) g = -std::abs(g);
  made.p.gates = Rounded(made.p.gates, types.gates);
  if (state) made.p.state = Rounded(Random(D, rng), DType::kF32);
  made.grad_out = Rounded(Random(T * D, rng), types.rows);
  made.grad_state = Rounded(Random(D, rng), DType::kF32);
  return made;
}

struct Outcome {
  std::vector<double> out, dx, dg;  // [T, D]
  std::vector<float> state, d_state;
  bool operator==(const Outcome&) const = default;
};

// All cases as one call, packed or padded, on strided and guarded tensors.
std::vector<Outcome> RunElementwise(const std::vector<ElementwiseCase>& cases,
                                    Types types, bool spread, bool packed,
                                    Executor& executor) {
  const int64_t D = cases[0].p.channels;
  const auto count = static_cast<int64_t>(cases.size());
  std::vector<int64_t> cu = {0}, lengths;
  std::vector<float> initial, grad_state;
  for (const ElementwiseCase& one : cases) {
    cu.push_back(cu.back() + one.p.seq_len);
    lengths.push_back(one.p.seq_len);
    initial.insert(initial.end(), one.p.state.begin(), one.p.state.end());
    grad_state.insert(grad_state.end(), one.grad_state.begin(),
                      one.grad_state.end());
  }
  const int64_t rows =
      packed ? cu.back() : *std::max_element(lengths.begin(), lengths.end());
  const auto tensor = [&](DType dtype) {
    return GuardedTensor(packed ? 1 : count, rows, 1, D, dtype, spread);
  };
  const auto row = [&](int64_t n) { return packed ? 0 : n; };
  const auto start = [&](int64_t n) { return packed ? cu[n] : 0; };
  GuardedTensor inputs = tensor(types.rows), gates = tensor(types.gates);
  GuardedTensor out = tensor(types.rows), grad_out = tensor(types.rows);
  GuardedTensor dx = tensor(types.rows), dg = tensor(types.gates);
  for (int64_t n = 0; n < count; ++n) {
    inputs.Fill(row(n), start(n), cases[n].p.inputs);
    gates.Fill(row(n), start(n), cases[n].p.gates);
    grad_out.Fill(row(n), start(n), cases[n].grad_out);
  }
  ElementwiseRecurrenceInputs in;
  in.inputs = inputs.view();
  in.gates = gates.view();
  if (packed) {
    in.cu_seqlens = cu.data();
    in.sequences = count;
  } else if (count > 1) {
    in.lengths = lengths.data();
  }
  in.initial_state = initial.empty() ? nullptr : initial.data();
  std::vector<float> state(count * D, NAN), d_state(count * D, NAN);
  std::vector<float> saved(ElementwiseCheckpoints(in) * D, NAN);
  ElementwiseRecurrenceForward(in, {out.view(), state.data(), saved.data()},
                               executor);
  ElementwiseRecurrenceBackward(
      in,
      {saved.data(), grad_out.view(),
       grad_state.empty() ? nullptr : grad_state.data(), dx.view(), dg.view(),
       d_state.data()},
      executor);
  for (const GuardedTensor* x : {&out, &dx, &dg}) {
    EXPECT_TRUE(x->GuardsIntact());
    for (int64_t n = 0; !packed && n < count; ++n) {
      for (double pad : x->Read(n, lengths[n], rows - lengths[n])) {
        EXPECT_EQ(0.0, pad);
      }
    }
  }
  std::vector<Outcome> runs;
  for (int64_t n = 0; n < count; ++n) {
    const auto read = [&](const GuardedTensor& x) {
      return x.Read(row(n), start(n), lengths[n]);
    };
    runs.push_back({read(out),
                    read(dx),
                    read(dg),
                    {state.begin() + n * D, state.begin() + (n + 1) * D},
                    {d_state.begin() + n * D, d_state.begin() + (n + 1) * D}});
  }
  return runs;
}

Outcome RunAlone(const ElementwiseCase& one, Types types = {},
                 bool spread = false) {
  SerialExecutor serial;
  return RunElementwise({one}, types, spread, false, serial)[0];
}

void Check(const ElementwiseCase& one, Types types, bool spread,
           const std::string& what) {
  const Outcome got = RunAlone(one, types, spread);
  const auto ref = reference::ElementwiseForward(one.p);
  const auto grad =
      reference::ElementwiseBackward(one.p, one.grad_out, one.grad_state);
  const Tolerance t = OutputTolerance(types.rows),
                  g = GradientTolerance(types.rows),
                  gates = GradientTolerance(types.gates);
  const auto wide = [](const std::vector<float>& x) {
    return std::vector<double>(x.begin(), x.end());
  };
  // A row may be one number, and a state that cancels.
  const double floor = 1;
  const int64_t D = one.p.channels;
  ExpectClose(got.out, ref.out, D, t.r, t.m, what + " out", floor);
  ExpectClose(wide(got.state), ref.state, D, 2e-6, 1e-5, what + " state",
              floor);
  ExpectClose(got.dx, grad.inputs, D, g.r, g.m, what + " dx", floor);
  ExpectClose(got.dg, grad.gates, D, gates.r, gates.m, what + " dg", floor);
  ExpectClose(wide(got.d_state), grad.state, D, 2e-6, 1e-5, what + " dstate",
              floor);
}

TEST(ElementwiseRecurrenceReference, AgreesWithFiniteDifferences) {
  for (int64_t T : {1, 6}) {
    ElementwiseCase one = MakeCase(T, 3, 2);
    const auto g =
        reference::ElementwiseBackward(one.p, one.grad_out, one.grad_state);
    const auto value = [&] {
      const auto r = reference::ElementwiseForward(one.p);
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
    check(one.p.gates, g.gates);
    check(one.p.state, g.state);
  }
}

class ElementwiseRecurrenceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

TEST_P(ElementwiseRecurrenceTest, LengthsAndChannelsMatchReference) {
  uint64_t seed = 0;
  for (int64_t T : {0, 1, 2, 31, 32, 33, 64, 65, 100}) {
    for (int64_t D : {1, 3, 16, 33, 64, 100, 192}) {
      ++seed;
      Check(MakeCase(T, D, seed, {}, seed % 3 != 0), {}, seed % 2,
            "T" + std::to_string(T) + " D" + std::to_string(D));
    }
  }
}

TEST_P(ElementwiseRecurrenceTest, HalfTypesMatchReference) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (DType gates : {dtype, DType::kF32}) {
      for (uint64_t seed = 1; seed < 4; ++seed) {
        const Types types = {dtype, gates};
        Check(MakeCase(70, 50, seed, types), types, seed % 2, DTypeName(dtype));
      }
    }
  }
}

TEST_P(ElementwiseRecurrenceTest, GatesOfAnySize) {
  for (double size : {-1e-3, -1e-1, -50.0, -86.9, -87.1, -1e4, -kInfinity}) {
    ElementwiseCase one = MakeCase(80, 33, 3);
    for (double& g : one.p.gates) g = static_cast<float>(size);
    Check(one, {}, false, "gates of " + std::to_string(size));
  }
  ElementwiseCase growing = MakeCase(9, 33, 4);
  for (double& g : growing.p.gates) g = 0.5f;
  Check(growing, {}, false, "gates above 0");
}

// Few decays and many tokens: rounding does not gather.
TEST_P(ElementwiseRecurrenceTest, ManyTokensStayAccurate) {
  ElementwiseCase one = MakeCase(4096, 20, 5);
  for (double& g : one.p.gates) g = static_cast<float>(g * 1e-3);
  Check(one, {}, false, "long");
}

TEST_P(ElementwiseRecurrenceTest, PackedEqualsPaddedEqualsAloneBitwise) {
  SerialExecutor serial;
  ThreadPool pool(3);
  std::vector<ElementwiseCase> cases;
  for (int64_t T : {5, 0, 1, 90, 33, 64, 2}) {
    cases.push_back(MakeCase(T, 100, 10 + T));
  }
  const auto packed = RunElementwise(cases, {}, true, true, pool);
  const auto padded = RunElementwise(cases, {}, false, false, serial);
  for (size_t n = 0; n < cases.size(); ++n) {
    const Outcome alone = RunAlone(cases[n]);
    EXPECT_TRUE(packed[n] == alone) << n;
    EXPECT_TRUE(padded[n] == alone) << n;
  }
}

TEST_P(ElementwiseRecurrenceTest, ThreadsAndOrderChangeNoBit) {
  const ElementwiseCase one = MakeCase(200, 200, 2);
  const Outcome alone = RunAlone(one);
  for (int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_TRUE(alone == RunElementwise({one}, {}, false, false, pool)[0]);
  }
  ReversedExecutor reversed;
  EXPECT_TRUE(alone == RunElementwise({one}, {}, false, false, reversed)[0]);
}

// A channel's bits depend neither on its lane nor on its neighbours, and a
// state that leaves one call and enters the next is the state of the whole.
TEST_P(ElementwiseRecurrenceTest, StepsInPlaceAndColumnsGiveTheBitsOfTheWhole) {
  SerialExecutor serial;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ElementwiseCase one = MakeCase(70, 70, 2, {dtype, dtype});
    GuardedTensor inputs(1, 70, 1, 70, dtype, false), gates = inputs;
    inputs.Fill(0, 0, one.p.inputs);
    gates.Fill(0, 0, one.p.gates);
    GuardedTensor whole(1, 70, 1, 70, dtype, false), parts = whole;
    const std::vector<float> before(one.p.state.begin(), one.p.state.end());
    std::vector<float> after(70, NAN);
    ElementwiseRecurrenceInputs in;
    in.inputs = inputs.view();
    in.gates = gates.view();
    in.initial_state = before.data();
    ElementwiseRecurrenceForward(in, {whole.view(), after.data()}, serial);
    for (auto [first, width] : {std::pair<int64_t, int64_t>{0, 41}, {41, 29}}) {
      std::vector<float> state(before.begin() + first,
                               before.begin() + first + width);
      for (int64_t t = 0, run = 1; t < 70; t += run, run = run % 40 + 13) {
        run = std::min(run, 70 - t);
        const auto part = [&, first = first, width = width](TensorView view) {
          view.data = view.Row(0, t, 0) + first * DTypeBytes(dtype);
          view.size[1] = run;
          view.size[3] = width;
          return view;
        };
        ElementwiseRecurrenceInputs piece;
        piece.inputs = part(inputs.view());
        piece.gates = part(gates.view());
        piece.initial_state = state.data();
        ElementwiseRecurrenceForward(piece, {part(parts.view()), state.data()},
                                     serial);
      }
      EXPECT_TRUE(
          std::equal(state.begin(), state.end(), after.begin() + first));
    }
    EXPECT_EQ(whole.Read(0, 0, 70), parts.Read(0, 0, 70));
  }
}

TEST_P(ElementwiseRecurrenceTest, OneBadChannelStaysAlone) {
  ElementwiseCase one = MakeCase(50, 40, 2);
  const Outcome clean = RunAlone(one);
  one.p.inputs[5 * 40 + 3] = std::nan("");
  one.p.gates[9 * 40 + 7] = std::nan("");
  const Outcome run = RunAlone(one);
  for (int64_t t = 0; t < 50; ++t) {
    for (int64_t c = 0; c < 40; ++c) {
      const int64_t i = t * 40 + c;
      if ((c == 3 && t >= 5) || (c == 7 && t >= 9)) {
        EXPECT_TRUE(std::isnan(run.out[i]));
      } else {
        EXPECT_EQ(clean.out[i], run.out[i]);
      }
      if (c != 3 && c != 7) {
        EXPECT_EQ(clean.dx[i], run.dx[i]);
        EXPECT_EQ(clean.dg[i], run.dg[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ElementwiseRecurrenceTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(ElementwiseRecurrenceErrors, NameArgumentWantedAndGiven) {
  float data[64] = {0};
  ElementwiseRecurrenceInputs in;
  in.inputs = in.gates = TensorView::Dense(data, 1, 2, 1, 4);
  const auto message = [&](const ElementwiseRecurrenceInputs& i,
                           TensorView out) {
    try {
      CheckElementwiseRecurrence(i, out);
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ("accepted", message(in, in.inputs));
  ElementwiseRecurrenceInputs bad = in;
  bad.inputs = TensorView::Dense(data, 1, 2, 2, 2);
  EXPECT_EQ(
      "elementwise_recurrence: inputs: want [B, T, 1, D] with D >= 1, got "
      "[1, 2, 2, 2]",
      message(bad, in.inputs));
  bad = in;
  bad.gates = TensorView::Dense(data, 1, 2, 1, 3);
  EXPECT_EQ(
      "elementwise_recurrence: gates: want [1, 2, 1, 4], got [1, 2, 1, 3]",
      message(bad, in.inputs));
  bad = in;
  bad.gates.dtype = DType::kBF16;
  EXPECT_EQ("elementwise_recurrence: gates: want F32, got BF16",
            message(bad, in.inputs));
  bad = in;
  const int64_t lengths[] = {3};
  bad.lengths = lengths;
  EXPECT_EQ("elementwise_recurrence: lengths[0]: want 0 to 2, got 3",
            message(bad, in.inputs));
  EXPECT_EQ("elementwise_recurrence: out: want [1, 2, 1, 4], got [1, 1, 1, 4]",
            message(in, TensorView::Dense(data, 1, 1, 1, 4)));
  std::vector<float> long_rows(33);
  in.inputs = in.gates = TensorView::Dense(long_rows.data(), 1, 33, 1, 1);
  SerialExecutor serial;
  try {
    ElementwiseRecurrenceBackward(
        in, {nullptr, in.inputs, nullptr, in.inputs, in.inputs}, serial);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(
        "elementwise_recurrence: checkpoints: want those of the forward call, "
        "got a null pointer",
        error.what());
  }
}

TEST(ElementwiseRecurrenceErrors, EmptyBatchAndNoTokensAreFine) {
  SerialExecutor serial;
  for (auto [B, T] : {std::pair<int64_t, int64_t>{0, 5}, {2, 0}}) {
    std::vector<float> state(B * 3, 2.0f), after(B * 3, NAN),
        d_state(B * 3, NAN);
    ElementwiseRecurrenceInputs in;
    in.inputs = in.gates = TensorView::Dense(nullptr, B, T, 1, 3);
    in.initial_state = state.data();
    ElementwiseRecurrenceForward(in, {in.inputs, after.data()}, serial);
    EXPECT_EQ(state, after);
    ElementwiseRecurrenceBackward(
        in,
        {nullptr, in.inputs, state.data(), in.inputs, in.gates, d_state.data()},
        serial);
    EXPECT_EQ(state, d_state);
  }
}

}  // namespace
}  // namespace tarn::testing
