#include "kernels/aft_simple/aft_simple.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/test_util.h"
#include "kernels/aft_simple/aft_simple_ref.h"
#include "kernels/simd_target.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kGuard = 77.0f;

using testing::Normals;

struct Shape {
  int64_t batch = 2, queries = 7, keys = 7, heads = 2, width = 5;
  bool causal = true;
  int64_t offset = 0;
};

// Floats [batch, rows, heads, width] inside a larger block of guards: `pad`
// floats after every head, so that nothing is aligned and nothing is dense.
struct Block {
  int64_t batch = 0, rows = 0, heads = 0, width = 0, pad = 0;
  std::vector<float> data;

  Block() = default;
  Block(int64_t batch, int64_t rows, int64_t heads, int64_t width, int64_t pad,
        uint64_t seed, float scale = 1.0f)
      : batch(batch), rows(rows), heads(heads), width(width), pad(pad) {
    data.assign(pad + batch * rows * heads * (width + pad), kGuard);
    const std::vector<float> x = Normals(batch * rows * heads * width, seed);
    size_t next = 0;
    ForEach([&](float& value) { value = scale * x[next++]; });
  }
  TensorView View() {
    const int64_t head = width + pad;
    return {data.data() + pad,
            {batch, rows, heads, width},
            {rows * heads * head, heads * head, head},
            DType::kF32};
  }
  float& At(int64_t b, int64_t t, int64_t h, int64_t c) {
    return reinterpret_cast<float*>(View().Row(b, t, h))[c];
  }
  template <typename F>
  void ForEach(const F& f) {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t c = 0; c < width; ++c) f(At(b, t, h, c));
        }
      }
    }
  }
  std::vector<float> Dense() {
    std::vector<float> values;
    ForEach([&](float& value) { values.push_back(value); });
    return values;
  }
  int64_t Guards() const {
    return std::count(data.begin(), data.end(), kGuard);
  }
};

struct State {
  std::vector<float> m, a, b;
  State() = default;
  explicit State(int64_t count)
      : m(count, -kInfinity), a(count, 0.0f), b(count, 0.0f) {}
  AftSimpleState View() { return {m.data(), a.data(), b.data()}; }
  bool operator==(const State&) const = default;
};

// A call, its results and its gradient. Results and scratch begin as NaN.
struct Problem {
  Shape shape;
  Block q, k, v, out, grad_out, grad_q, grad_k, grad_v;
  std::unique_ptr<bool[]> kept;
  State initial, end, grad_end, grad_initial;
  bool started = false;  // from a given state

  explicit Problem(Shape s, int64_t pad = 0, float scale = 2.0f) : shape(s) {
    const auto block = [&](int64_t rows, uint64_t seed, float size) {
      return Block(s.batch, rows, s.heads, s.width, pad, seed, size);
    };
    q = block(s.queries, 1, 2.0f);
    k = block(s.keys, 2, scale);
    v = block(s.keys, 3, 1.0f);
    grad_out = block(s.queries, 4, 1.0f);
    out = grad_q = block(s.queries, 0, kNaN);
    grad_k = grad_v = block(s.keys, 0, kNaN);
    initial = end = State(Channels());
    grad_end.m = Normals(Channels(), 5);
    grad_end.a = Normals(Channels(), 6);
    grad_end.b = Normals(Channels(), 7);
    grad_initial.m.assign(Channels(), kNaN);
    grad_initial.a = grad_initial.b = grad_initial.m;
  }
  int64_t Channels() const { return shape.batch * shape.heads * shape.width; }
  void Mask(uint64_t seed) {
    Rng rng(seed);
    kept.reset(new bool[shape.batch * shape.keys]);
    for (int64_t i = 0; i < shape.batch * shape.keys; ++i) {
      kept[i] = i >= shape.keys && rng.Below(3) > 0;  // none of sequence 0
    }
  }
  void Start() {
    started = true;
    initial.m = Normals(Channels(), 8);
    initial.a = Normals(Channels(), 9);
    for (float& b : initial.b) b = 1.5f;
  }
  AftSimpleInputs Inputs() {
    return {q.View(),   k.View(),     v.View(),
            kept.get(), shape.causal, shape.offset};
  }
  AftSimpleGradients Gradients() {
    return {grad_out.View(),   grad_end.m.data(),  grad_end.a.data(),
            grad_end.b.data(), grad_q.View(),      grad_k.View(),
            grad_v.View(),     grad_initial.View()};
  }
  void Run(Executor& executor) {
    end = initial;
    AftSimpleForward(Inputs(), end.View(), out.View(), executor);
    std::vector<float> scratch(
        AftSimpleBackwardFloats(Inputs(), executor.width()) + 1, kNaN);
    scratch.back() = kGuard;
    AftSimpleBackward(Inputs(), started ? initial.View() : AftSimpleState(),
                      Gradients(), executor, scratch.data());
    EXPECT_EQ(kGuard, scratch.back());
  }
  reference::AftProblem Channel(int64_t b, int64_t h, int64_t c) {
    reference::AftProblem one;
    for (int64_t t = 0; t < shape.queries; ++t) {
      one.q.push_back(q.At(b, t, h, c));
    }
    for (int64_t t = 0; t < shape.keys; ++t) {
      one.k.push_back(k.At(b, t, h, c));
      one.v.push_back(v.At(b, t, h, c));
      if (kept != nullptr) one.kept.push_back(kept[b * shape.keys + t]);
    }
    one.causal = shape.causal;
    one.causal_offset = shape.offset;
    const int64_t at = (b * shape.heads + h) * shape.width + c;
    one.initial = {initial.m[at], initial.a[at], initial.b[at]};
    return one;
  }
};

void Near(double want, float got, double bound, const std::string& what) {
  if (std::isinf(want)) {
    EXPECT_EQ(want, static_cast<double>(got)) << what;
  } else {
    EXPECT_NEAR(want, got, bound * (1 + std::fabs(want))) << what;
  }
}

void ExpectReference(Problem& p, double bound, double gradient_bound) {
  const Shape& s = p.shape;
  for (int64_t at = 0; at < p.Channels(); ++at) {
    const int64_t c = at % s.width, h = at / s.width % s.heads;
    const int64_t b = at / s.width / s.heads;
    const reference::AftProblem one = p.Channel(b, h, c);
    const reference::AftResult want = reference::AftSimple(one);
    reference::AftResult grad;
    for (int64_t t = 0; t < s.queries; ++t) {
      Near(want.out[t], p.out.At(b, t, h, c), bound, "out");
      grad.out.push_back(p.grad_out.At(b, t, h, c));
    }
    Near(want.end.m, p.end.m[at], 0, "m");
    Near(want.end.a, p.end.a[at], bound, "a");
    Near(want.end.b, p.end.b[at], bound, "b");
    grad.end = {p.grad_end.m[at], p.grad_end.a[at], p.grad_end.b[at]};
    const reference::AftGradient g = reference::AftSimpleBackward(one, grad);
    for (int64_t t = 0; t < s.queries; ++t) {
      Near(g.q[t], p.grad_q.At(b, t, h, c), gradient_bound, "grad q");
    }
    for (int64_t t = 0; t < s.keys; ++t) {
      Near(g.k[t], p.grad_k.At(b, t, h, c), gradient_bound, "grad k");
      Near(g.v[t], p.grad_v.At(b, t, h, c), gradient_bound, "grad v");
    }
    Near(g.initial.m, p.grad_initial.m[at], gradient_bound, "grad m");
    Near(g.initial.a, p.grad_initial.a[at], gradient_bound, "grad a");
    Near(g.initial.b, p.grad_initial.b[at], gradient_bound, "grad b");
  }
}

// The reference's gradient against central differences.
TEST(AftSimpleReference, GradientEqualsDifferences) {
  reference::AftProblem in;
  in.q = {0.5, -0.4, 1.7, -2.0};
  in.k = {0.3, -0.2, 1.1, 0.4, -3.0};
  in.v = {1.0, -0.3, 0.2, 2.0, 0.7};
  in.kept = {true, true, false, true, true};
  const reference::AftResult dy = {{1, 2, -1, 0.5}, {0.3, -0.8, 0.6}};
  for (const double m : {0.1, 0.9}) {  // the maximum at a key, in the state
    for (const bool causal : {true, false}) {
      in.initial = {m, 0.7, 1.3};
      in.causal = causal;
      in.causal_offset = 1;
      const auto loss = [&] {
        const reference::AftResult y = reference::AftSimple(in);
        double sum =
            y.end.m * dy.end.m + y.end.a * dy.end.a + y.end.b * dy.end.b;
        for (size_t i = 0; i < y.out.size(); ++i) sum += y.out[i] * dy.out[i];
        return sum;
      };
      const auto check = [&](double& at, double gradient) {
        constexpr double kStep = 1e-6;
        const double before = at;
        at = before + kStep;
        const double up = loss();
        at = before - kStep;
        const double down = loss();
        at = before;
        EXPECT_NEAR(gradient, (up - down) / (2 * kStep), 1e-8);
      };
      const reference::AftGradient g = reference::AftSimpleBackward(in, dy);
      for (size_t i = 0; i < 4; ++i) check(in.q[i], g.q[i]);
      for (size_t i = 0; i < 5; ++i) check(in.k[i], g.k[i]);
      for (size_t i = 0; i < 5; ++i) check(in.v[i], g.v[i]);
      check(in.initial.m, g.initial.m);
      check(in.initial.a, g.initial.a);
      check(in.initial.b, g.initial.b);
    }
  }
}

class AftSimpleTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
  SerialExecutor serial_;
};

TEST_P(AftSimpleTest, EqualsTheReference) {
  const Shape shapes[] = {{},
                          {2, 0, 5},
                          {2, 5, 0},
                          {2, 1, 1},
                          {0, 3, 3},
                          {2, 9, 4},
                          {2, 5, 9},
                          {1, 40, 40, 1, 1},
                          {1, 33, 33, 3, 17},
                          {1, 20, 20, 1, 67},
                          {2, 6, 6, 2, 130},
                          {2, 3, 3, 0, 4},
                          {2, 3, 3, 4, 0}};
  for (Shape shape : shapes) {
    for (const bool causal : {true, false}) {
      for (const int64_t offset : {0, 2, -3}) {
        if (!causal && offset != 0) continue;
        for (const int64_t pad : {0, 3}) {
          shape.causal = causal;
          shape.offset = offset;
          Problem p(shape, pad);
          if (pad > 0) p.Start();
          if (offset != 0) p.Mask(11);
          const int64_t guards = p.out.Guards() + p.grad_k.Guards();
          p.Run(serial_);
          // Some roundings of 2^-24 per key, of sums that do not cancel.
          ExpectReference(p, 1e-6, 1e-5);
          EXPECT_EQ(guards, p.out.Guards() + p.grad_k.Guards());
        }
      }
    }
  }
}

// exp(300) overflows and exp(-300) underflows in float32.
TEST_P(AftSimpleTest, KeysOfAnySize) {
  for (const float first : {-300.0f, 300.0f}) {
    for (const bool causal : {true, false}) {
      Problem p({1, 41, 41, 1, 19, causal});
      for (int64_t t = 0; t < 41; ++t) {
        for (int64_t c = 0; c < 19; ++c) {
          p.k.At(0, t, 0, c) = first * (1 - static_cast<float>(t) / 20);
        }
      }
      p.Run(serial_);
      ExpectReference(p, 1e-5, 1e-4);
    }
  }
}

TEST_P(AftSimpleTest, AKeyOfMinusInfinityIsNoKey) {
  Problem hidden({1, 9, 9, 1, 21}), masked({1, 9, 9, 1, 21});
  masked.kept.reset(new bool[9]);
  for (int64_t t = 0; t < 9; ++t) {
    masked.kept[t] = t % 3 == 1;
    if (masked.kept[t]) continue;
    for (int64_t c = 0; c < 21; ++c) hidden.k.At(0, t, 0, c) = -kInfinity;
  }
  hidden.Run(serial_);
  masked.Run(serial_);
  EXPECT_EQ(0.0f, hidden.out.At(0, 0, 0, 0));  // nothing read yet
  EXPECT_EQ(masked.out.data, hidden.out.data);
  EXPECT_EQ(masked.end, hidden.end);
  EXPECT_EQ(masked.grad_q.data, hidden.grad_q.data);
  EXPECT_EQ(masked.grad_k.data, hidden.grad_k.data);
  EXPECT_EQ(masked.grad_v.data, hidden.grad_v.data);
}

TEST_P(AftSimpleTest, AnyExecutorAndLayoutGiveTheSameBits) {
  const Shape shape = {3, 50, 50, 3, 70};
  Problem wanted(shape);
  wanted.Start();
  wanted.Run(serial_);
  for (const int threads : {1, 2, 3, 8}) {
    for (const int64_t pad : {0, 1}) {
      ThreadPool pool(threads);
      Problem given(shape, pad);
      given.Start();
      given.Run(pool);
      EXPECT_EQ(wanted.out.Dense(), given.out.Dense());
      EXPECT_EQ(wanted.end, given.end);
      EXPECT_EQ(wanted.grad_q.Dense(), given.grad_q.Dense());
      EXPECT_EQ(wanted.grad_k.Dense(), given.grad_k.Dense());
      EXPECT_EQ(wanted.grad_v.Dense(), given.grad_v.Dense());
      EXPECT_EQ(wanted.grad_initial, given.grad_initial);
    }
  }
}

// Prefill in parts, single steps and a part of the channels alone.
TEST_P(AftSimpleTest, AnySplitGivesTheSameBits) {
  constexpr int64_t kTokens = 23, kWidth = 37;
  Problem whole({2, kTokens, kTokens, 1, kWidth});
  // Keys far apart: the targets' exponential leaves its fast path for some.
  for (float& k : whole.k.data) k *= 40;
  whole.Run(serial_);
  const auto part = [](TensorView view, int64_t begin, int64_t count) {
    view.data = view.Row(0, begin, 0);
    view.size[1] = count;
    return view;
  };
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{23}, {10, 13}, {0, 1, 22}, {}}) {
    Problem given(whole.shape);
    given.k = whole.k;
    int64_t at = 0;
    for (size_t i = 0; at < kTokens; ++i) {
      const int64_t count = sizes.empty() ? 1 : sizes[i];
      const AftSimpleInputs in = {part(given.q.View(), at, count),
                                  part(given.k.View(), at, count),
                                  part(given.v.View(), at, count),
                                  nullptr,
                                  true,
                                  0};
      AftSimpleForward(in, given.end.View(), part(given.out.View(), at, count),
                       serial_);
      at += count;
    }
    EXPECT_EQ(whole.out.data, given.out.data);
    EXPECT_EQ(whole.end, given.end);
  }
  const auto columns = [](TensorView view, int64_t begin, int64_t count) {
    view.data = static_cast<float*>(view.data) + begin;
    view.size[0] = 1;
    view.size[3] = count;
    return view;
  };
  Problem given(whole.shape);
  given.k = whole.k;
  for (int64_t begin = 0; begin < kWidth; begin += 5) {
    const int64_t count = std::min<int64_t>(5, kWidth - begin);
    AftSimpleForward({columns(given.q.View(), begin, count),
                      columns(given.k.View(), begin, count),
                      columns(given.v.View(), begin, count), nullptr, true, 0},
                     {given.end.m.data() + begin, given.end.a.data() + begin,
                      given.end.b.data() + begin},
                     columns(given.out.View(), begin, count), serial_);
  }
  for (int64_t t = 0; t < kTokens; ++t) {
    EXPECT_EQ(0, std::memcmp(&whole.out.At(0, t, 0, 0),
                             &given.out.At(0, t, 0, 0), kWidth * 4));
  }
}

TEST_P(AftSimpleTest, NaNStaysInItsChannelAndAfterItsToken) {
  Problem clean({1, 12, 12, 1, 35}), poisoned({1, 12, 12, 1, 35});
  poisoned.k.At(0, 4, 0, 7) = kNaN;
  poisoned.v.At(0, 6, 0, 20) = kNaN;
  clean.Run(serial_);
  poisoned.Run(serial_);
  for (int64_t t = 0; t < 12; ++t) {
    EXPECT_EQ(t >= 4, std::isnan(poisoned.out.At(0, t, 0, 7)));
    EXPECT_EQ(t >= 6, std::isnan(poisoned.out.At(0, t, 0, 20)));
    for (int64_t c = 0; c < 35; ++c) {
      if (c != 7 && c != 20) {
        EXPECT_EQ(clean.out.At(0, t, 0, c), poisoned.out.At(0, t, 0, c));
        EXPECT_EQ(clean.grad_k.At(0, t, 0, c), poisoned.grad_k.At(0, t, 0, c));
      }
    }
  }
}

// NaN in what masks hide and in queries without a gradient has no effect.
TEST_P(AftSimpleTest, PaddingIsNeverRead) {
  Problem clean({2, 12, 12, 2, 9}), padded({2, 12, 12, 2, 9});
  for (Problem* p : {&clean, &padded}) {
    p->Mask(3);
    for (int64_t c = 0; c < 9; ++c) {
      p->grad_out.At(1, 11, 0, c) = 0;
      p->q.At(1, 11, 0, c) = p == &padded ? kNaN : 0.0f;
    }
  }
  for (int64_t i = 0; i < 24; ++i) {
    if (padded.kept[i]) continue;
    for (int64_t c = 0; c < 9; ++c) {
      padded.k.At(i / 12, i % 12, 1, c) = kNaN;
      padded.v.At(i / 12, i % 12, 1, c) = kNaN;
    }
  }
  clean.Run(serial_);
  padded.Run(serial_);
  EXPECT_EQ(clean.end, padded.end);
  EXPECT_EQ(clean.grad_q.data, padded.grad_q.data);
  EXPECT_EQ(clean.grad_k.data, padded.grad_k.data);
  EXPECT_EQ(clean.grad_v.data, padded.grad_v.data);
}

TEST_P(AftSimpleTest, AbsentGradientsAreZeros) {
  Problem zeros({2, 8, 8, 2, 9}), absent({2, 8, 8, 2, 9});
  zeros.grad_end = State(zeros.Channels());
  zeros.grad_end.m.assign(zeros.Channels(), 0.0f);
  zeros.Run(serial_);
  AftSimpleGradients g = absent.Gradients();
  g.m = g.a = g.b = nullptr;
  g.initial = {};
  std::vector<float> scratch(AftSimpleBackwardFloats(absent.Inputs(), 1));
  AftSimpleBackward(absent.Inputs(), {}, g, serial_, scratch.data());
  EXPECT_EQ(zeros.grad_k.data, absent.grad_k.data);
  EXPECT_EQ(zeros.grad_v.data, absent.grad_v.data);
  EXPECT_TRUE(std::isnan(absent.grad_initial.m[0]));
  g.out = {};
  AftSimpleBackward(absent.Inputs(), {}, g, serial_, scratch.data());
  for (const float x : absent.grad_v.data) EXPECT_EQ(0.0f, x);
}

INSTANTIATE_TEST_SUITE_P(Targets, AftSimpleTest,
                         ::testing::ValuesIn(SimdTargets()));

TEST(AftSimpleArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  Problem p({2, 3, 4, 2, 5});
  const auto where = [&](const auto& change) {
    AftSimpleInputs in = p.Inputs();
    AftSimpleState state = p.end.View();
    TensorView out = p.out.View();
    change(in, state, out);
    return ErrorOf([&] { AftSimpleForward(in, state, out, executor); }).where();
  };
  const auto nothing = [](auto&, auto&, auto&) {};
  EXPECT_EQ("aft_simple: queries",
            where([](auto& in, auto&, auto&) { in.queries.size[1] = -1; }));
  EXPECT_EQ("aft_simple: queries",
            where([](auto& in, auto&, auto&) { in.queries.data = nullptr; }));
  EXPECT_EQ("aft_simple: keys",
            where([](auto& in, auto&, auto&) { in.keys.size[3] = 4; }));
  EXPECT_EQ("aft_simple: keys",
            where([](auto& in, auto&, auto&) { in.keys.size[1] = -4; }));
  EXPECT_EQ("aft_simple: values",
            where([](auto& in, auto&, auto&) { in.values.size[1] = 3; }));
  EXPECT_EQ("aft_simple: values", where([](auto& in, auto&, auto&) {
              in.values.dtype = DType::kBF16;
            }));
  EXPECT_EQ("aft_simple: state",
            where([](auto&, auto& state, auto&) { state.b = nullptr; }));
  EXPECT_EQ("aft_simple: state",
            where([](auto&, auto& state, auto&) { state = {}; }));
  EXPECT_EQ("aft_simple: out",
            where([](auto&, auto&, auto& out) { out.size[1] = 4; }));
  EXPECT_TRUE(std::isnan(p.out.data[0]));
  EXPECT_EQ("no error", where(nothing));

  std::vector<float> scratch(AftSimpleBackwardFloats(p.Inputs(), 1));
  const auto backward = [&](const auto& change) {
    AftSimpleGradients g = p.Gradients();
    AftSimpleState initial;
    float* workspace = scratch.data();
    change(g, initial, workspace);
    return ErrorOf([&] {
             AftSimpleBackward(p.Inputs(), initial, g, executor, workspace);
           })
        .where();
  };
  EXPECT_EQ("aft_simple: gradients.out",
            backward([](auto& g, auto&, auto&) { g.out.size[0] = 1; }));
  EXPECT_EQ("aft_simple: gradients.keys",
            backward([](auto& g, auto&, auto&) { g.keys.data = nullptr; }));
  EXPECT_EQ("aft_simple: gradients.initial",
            backward([](auto& g, auto&, auto&) { g.initial.a = nullptr; }));
  EXPECT_EQ("aft_simple: initial", backward([&](auto&, auto& initial, auto&) {
              initial.m = p.initial.m.data();
            }));
  EXPECT_EQ("aft_simple: workspace",
            backward([](auto&, auto&, auto& w) { w = nullptr; }));
  EXPECT_TRUE(std::isnan(p.grad_q.data[0]));
  EXPECT_EQ("no error", backward(nothing));
}

}  // namespace
}  // namespace tarn
