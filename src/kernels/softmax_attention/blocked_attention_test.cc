#include "kernels/softmax_attention/blocked_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "core/error.h"
#include "kernels/aligned_buffer.h"
#include "kernels/linear_attention/test_problem.h"
#include "kernels/simd_target.h"
#include "kernels/softmax_attention/blocked_attention_ref.h"

namespace tarn::testing {
namespace {

using reference::AttentionProblem;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Kind {
  int64_t batch = 2, seq_len = 1, key_len = -1, heads = 2, d_key = 5,
          d_value = 7;
  BlockedAttentionOptions options;
  bool key_mask = false, key_lengths = false, mask = false, bias = false;
};

std::vector<double> Floats(int64_t n, std::mt19937_64& rng) {
  std::vector<double> x = Random(n, rng);
  for (double& v : x) v = static_cast<float>(v);
  return x;
}

AttentionProblem MakeAttention(const Kind& kind, uint64_t seed) {
  std::mt19937_64 rng(seed);
  AttentionProblem p;
  p.options = kind.options;
  p.batch = kind.batch;
  p.seq_len = kind.seq_len;
  p.key_len = kind.key_len < 0 ? kind.seq_len : kind.key_len;
  p.heads = kind.heads;
  p.d_key = kind.d_key;
  p.d_value = kind.d_value;
  p.queries = Floats(p.batch * p.seq_len * p.heads * p.d_key, rng);
  p.keys = Floats(p.batch * p.key_len * p.heads * p.d_key, rng);
  p.values = Floats(p.batch * p.key_len * p.heads * p.d_value, rng);
  const int64_t pairs = p.batch * p.heads * p.seq_len * p.key_len;
  if (kind.bias) p.bias = Floats(pairs, rng);
  const auto some = [&](int64_t n) {
    std::vector<uint8_t> kept(n);
    for (uint8_t& x : kept) x = rng() % 3 != 0;
    return kept;
  };
  if (kind.mask) p.mask = some(pairs);
  if (kind.key_mask) p.key_mask = some(p.batch * p.key_len);
  for (int64_t b = 0; kind.key_lengths && b < p.batch; ++b) {
    p.key_lengths.push_back(static_cast<int64_t>(rng() % (p.key_len + 1)));
  }
  if (p.options.dropout.probability > 0) {
    std::vector<float> factors(pairs);
    SerialExecutor serial;
    DropoutScales(p.options.dropout, p.batch * p.heads * p.seq_len, p.key_len,
                  factors.data(), serial);
    p.factors.assign(factors.begin(), factors.end());
  }
  return p;
}

// The kernel on a problem: strided, misaligned, guarded tensors whose outputs
// and scratch start as NaN.
class KernelCall {
 public:
  explicit KernelCall(const AttentionProblem& p)
      : p_(p),
        queries_(p.batch, p.seq_len, p.heads, p.d_key, DType::kF32, true),
        keys_(p.batch, p.key_len, p.heads, p.d_key, DType::kF32, true),
        values_(p.batch, p.key_len, p.heads, p.d_value, DType::kF32, true),
        out_(p.batch, p.seq_len, p.heads, p.d_value, DType::kF32, true),
        grad_out_(p.batch, p.seq_len, p.heads, p.d_value, DType::kF32, true),
        grad_queries_(p.batch, p.seq_len, p.heads, p.d_key, DType::kF32, true),
        grad_keys_(p.batch, p.key_len, p.heads, p.d_key, DType::kF32, true),
        grad_values_(p.batch, p.key_len, p.heads, p.d_value, DType::kF32, true),
        bias_(p.bias.begin(), p.bias.end()),
        statistics_(2 * p.batch * p.heads * p.seq_len, NAN) {
    Fill(queries_, p.queries);
    Fill(keys_, p.keys);
    Fill(values_, p.values);
    in_.queries = queries_.view();
    in_.keys = keys_.view();
    in_.values = values_.view();
    if (!p.key_mask.empty()) in_.key_mask = p_.key_mask.data();
    if (!p.key_lengths.empty()) in_.key_lengths = p_.key_lengths.data();
    const int64_t dense[] = {p.heads * p.seq_len * p.key_len,
                             p.seq_len * p.key_len, p.key_len, 1};
    if (!p.mask.empty()) in_.mask.data = p_.mask.data();
    if (!p.bias.empty()) in_.bias.data = bias_.data();
    std::copy(dense, dense + 4, in_.mask.stride);
    std::copy(dense, dense + 4, in_.bias.stride);
  }
  // [B, T, H, V].
  std::vector<double> Forward(Executor& executor) {
    AlignedBuffer<char> scratch = Scratch(executor.width(), false);
    BlockedAttentionForward(p_.options, in_, {out_.view(), statistics_.data()},
                            executor, scratch.data());
    EXPECT_TRUE(out_.GuardsIntact());
    return All(out_);
  }
  // [B, H, T, width].
  std::vector<int64_t> Topk(int64_t width, Executor& executor) {
    BlockedAttentionInputs in = in_;
    in.values = in.keys;
    std::vector<int64_t> indices(p_.batch * p_.heads * p_.seq_len * width, 77);
    AlignedBuffer<char> scratch(static_cast<int64_t>(
        BlockedAttentionTopkBytes(in, width, executor.width())));
    std::fill_n(scratch.data(), scratch.size(), char(0xFF));
    BlockedAttentionTopk(p_.options, in, width, indices.data(), executor,
                         scratch.data());
    return indices;
  }
  // After Forward. `bias_size`: the shape its gradient is summed to.
  reference::AttentionGradient Backward(const std::vector<double>& grad_out,
                                        Executor& executor,
                                        std::vector<int64_t> bias_size = {}) {
    Fill(grad_out_, grad_out);
    BlockedAttentionGradients g;
    g.out = out_.view();
    g.grad_out = grad_out_.view();
    g.statistics = statistics_.data();
    g.grad_queries = grad_queries_.view();
    g.grad_keys = grad_keys_.view();
    g.grad_values = grad_values_.view();
    std::vector<float> grad_bias;
    if (!bias_size.empty()) {
      std::copy(bias_size.begin(), bias_size.end(), g.bias_size);
      grad_bias.assign(
          bias_size[0] * bias_size[1] * bias_size[2] * bias_size[3], NAN);
      g.grad_bias = grad_bias.data();
    }
    AlignedBuffer<char> scratch = Scratch(executor.width(), true);
    BlockedAttentionBackward(p_.options, in_, g, executor, scratch.data());
    for (const auto* t : {&grad_queries_, &grad_keys_, &grad_values_}) {
      EXPECT_TRUE(t->GuardsIntact());
    }
    return {All(grad_queries_),
            All(grad_keys_),
            All(grad_values_),
            {grad_bias.begin(), grad_bias.end()}};
  }

 private:
  static void Fill(GuardedTensor& t, const std::vector<double>& x) {
    const int64_t rows = t.view().size[1] * t.view().size[2] * t.view().size[3];
    for (int64_t b = 0; b < t.view().size[0]; ++b) {
      t.Fill(b, 0, {x.begin() + b * rows, x.begin() + (b + 1) * rows});
    }
  }
  static std::vector<double> All(const GuardedTensor& t) {
    std::vector<double> x;
    for (int64_t b = 0; b < t.view().size[0]; ++b) {
      const std::vector<double> part = t.Read(b, 0, t.view().size[1]);
      x.insert(x.end(), part.begin(), part.end());
    }
    return x;
  }
  AlignedBuffer<char> Scratch(int width, bool backward) const {
    const size_t bytes = BlockedAttentionWorkspaceBytes(in_, width, backward);
    AlignedBuffer<char> scratch(static_cast<int64_t>(bytes));
    std::fill_n(scratch.data(), bytes, char(0xFF));
    return scratch;
  }

  AttentionProblem p_;
  GuardedTensor queries_, keys_, values_, out_, grad_out_, grad_queries_,
      grad_keys_, grad_values_;
  std::vector<float> bias_, statistics_;
  BlockedAttentionInputs in_;
};

// Largest difference, of the largest entry or 1.
double Difference(const std::vector<double>& want,
                  const std::vector<double>& got) {
  EXPECT_EQ(want.size(), got.size());
  double worst = 0, largest = 1;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(got[i])) return INFINITY;
    worst = std::max(worst, std::abs(want[i] - got[i]));
    largest = std::max(largest, std::abs(want[i]));
  }
  return worst / largest;
}

// Sums over the axes whose size is 1.
std::vector<double> SumTo(const AttentionProblem& p,
                          const std::vector<double>& x,
                          const std::vector<int64_t>& size) {
  std::vector<double> sums(size[0] * size[1] * size[2] * size[3], 0.0);
  const int64_t whole[] = {p.batch, p.heads, p.seq_len, p.key_len};
  for (size_t n = 0; n < x.size(); ++n) {
    int64_t rest = static_cast<int64_t>(n), index[4], to = 0;
    for (int axis = 3; axis >= 0; --axis) {
      index[axis] = size[axis] == 1 ? 0 : rest % whole[axis];
      rest /= whole[axis];
    }
    for (int axis = 0; axis < 4; ++axis) to = to * size[axis] + index[axis];
    sums[to] += x[n];
  }
  return sums;
}

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  const auto add = [&](const std::function<void(Kind&)>& set) {
    Kind kind;
    kind.options.scale = 0.4f;
    set(kind);
    kinds.push_back(kind);
  };
  for (const int64_t seq_len : {1, 3, 64, 65, 150}) {
    add([&](Kind& k) { k.seq_len = seq_len; });
    add([&](Kind& k) { k.seq_len = seq_len, k.options.causal = true; });
  }
  add([](Kind& k) { k.seq_len = 70, k.d_key = 33, k.d_value = 17; });
  add([](Kind& k) { k.seq_len = 20, k.d_key = 64, k.d_value = 1; });
  for (const auto& [seq_len, key_len, offset] : {std::tuple(40, 100, 60),
                                                 {100, 40, 0},
                                                 {130, 70, -20},
                                                 {5, 200, 195},
                                                 {70, 70, 1 << 30},
                                                 {9, 9, -30}}) {
    add([&, t = seq_len, s = key_len, o = offset](Kind& k) {
      k.seq_len = t, k.key_len = s;
      k.options.causal = true, k.options.causal_offset = o;
    });
  }
  for (const int64_t context : {1, 2, 8, 17, 130, 1000}) {
    for (const bool causal : {false, true}) {
      add([&](Kind& k) {
        k.seq_len = 140, k.options.local_context = context;
        k.options.causal = causal;
      });
    }
  }
  add([](Kind& k) { k.seq_len = 90, k.key_mask = true; });
  add([](Kind& k) { k.seq_len = 90, k.key_len = 131, k.key_lengths = true; });
  add([](Kind& k) { k.seq_len = 90, k.mask = k.options.causal = true; });
  add([](Kind& k) { k.seq_len = 70, k.key_len = 75, k.bias = true; });
  add([](Kind& k) {
    k.seq_len = 130, k.options.local_context = 9;
    k.key_mask = k.key_lengths = k.mask = k.bias = true;
    k.options.dropout = {0.3, 11};
  });
  add([](Kind& k) {
    k.seq_len = 100, k.key_len = 270, k.options.dropout = {0.2, 5};
  });
  add([](Kind& k) { k.seq_len = 30, k.options.scale = 0.0f; });
  return kinds;
}

class BlockedAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
  SerialExecutor serial_;
};

TEST(BlockedAttentionReference, GradientMatchesFiniteDifferences) {
  Kind kind;
  kind.batch = 1, kind.seq_len = 4, kind.key_len = 5, kind.d_key = 2;
  kind.d_value = 3;
  kind.options.scale = 0.7f;
  kind.options.local_context = 5;
  kind.options.dropout = {0.4, 3};
  kind.bias = kind.key_mask = true;
  AttentionProblem p = MakeAttention(kind, 9);
  std::mt19937_64 rng(1);
  const std::vector<double> grad = Random(4 * 2 * 3, rng);
  const auto loss = [&] {
    const std::vector<double> out = reference::SoftmaxAttention(p).out;
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * grad[i];
    return sum;
  };
  const auto g = reference::SoftmaxAttentionBackward(p, grad);
  const auto check = [&](std::vector<double>& x, const std::vector<double>& dx,
                         const char* name) {
    for (size_t i = 0; i < x.size(); ++i) {
      const double kept = x[i], step = 1e-5;
      x[i] = kept + step;
      const double above = loss();
      x[i] = kept - step;
      const double below = loss();
      x[i] = kept;
      EXPECT_NEAR((above - below) / (2 * step), dx[i], 1e-8) << name << i;
    }
  };
  check(p.queries, g.queries, "queries");
  check(p.keys, g.keys, "keys");
  check(p.values, g.values, "values");
  check(p.bias, g.bias, "bias");
}

TEST_P(BlockedAttentionTest, MatchesTheDoubleReference) {
  double worst = 0, worst_gradient = 0;
  uint64_t seed = 1;
  for (const Kind& kind : Kinds()) {
    const AttentionProblem p = MakeAttention(kind, ++seed);
    SCOPED_TRACE(::testing::Message()
                 << "T " << p.seq_len << " S " << p.key_len << " causal "
                 << p.options.causal << " context " << p.options.local_context
                 << " case " << seed);
    KernelCall run(p);
    const double forward =
        Difference(reference::SoftmaxAttention(p).out, run.Forward(serial_));
    EXPECT_LT(forward, 2e-6);
    worst = std::max(worst, forward);
    std::mt19937_64 rng(seed);
    const std::vector<double> grad =
        Floats(p.batch * p.seq_len * p.heads * p.d_value, rng);
    const std::vector<int64_t> size = {p.batch, p.heads, p.seq_len, p.key_len};
    const auto want = reference::SoftmaxAttentionBackward(p, grad);
    const auto got = run.Backward(grad, serial_, size);
    for (const double difference :
         {Difference(want.queries, got.queries),
          Difference(want.keys, got.keys), Difference(want.values, got.values),
          Difference(want.bias, got.bias)}) {
      EXPECT_LT(difference, 4e-6);
      worst_gradient = std::max(worst_gradient, difference);
    }
  }
  RecordProperty("worst_forward", std::to_string(worst));
  RecordProperty("worst_gradient", std::to_string(worst_gradient));
}

TEST_P(BlockedAttentionTest, BiasGradientIsSummedToItsShape) {
  Kind kind;
  kind.seq_len = 70, kind.key_len = 75, kind.bias = true;
  kind.options.scale = 0.3f;
  kind.options.dropout = {0.2, 8};
  const AttentionProblem p = MakeAttention(kind, 4);
  KernelCall run(p);
  run.Forward(serial_);
  std::mt19937_64 rng(2);
  const std::vector<double> grad = Floats(2 * 70 * 2 * 7, rng);
  const auto want = reference::SoftmaxAttentionBackward(p, grad);
  const int64_t whole[] = {2, 2, 70, 75};
  for (int kept = 0; kept < 16; ++kept) {
    std::vector<int64_t> size(4);
    for (int a = 0; a < 4; ++a) size[a] = kept >> a & 1 ? whole[a] : 1;
    const auto got = run.Backward(grad, serial_, size);
    EXPECT_LT(Difference(SumTo(p, want.bias, size), got.bias), 1e-5)
        << "axes " << kept;
  }
}

// Scores of a thousand: the maximum is subtracted before exp, block by block.
TEST_P(BlockedAttentionTest, LargeScoresDoNotOverflow) {
  Kind kind;
  kind.seq_len = 150, kind.options.scale = 300.0f;
  const AttentionProblem p = MakeAttention(kind, 7);
  KernelCall run(p);
  // An fp32 score near 1000 is off by 1e-4; weights follow.
  EXPECT_LT(
      Difference(reference::SoftmaxAttention(p).out, run.Forward(serial_)),
      2e-3);
}

// What is hidden may hold anything: same bits as with zeros there, forward and
// gradient, whichever term hides it.
TEST_P(BlockedAttentionTest, HiddenNaNHasNoInfluence) {
  for (const int how : {0, 1, 2, 3, 4}) {
    SCOPED_TRACE(how);
    Kind kind;
    kind.seq_len = 100, kind.batch = 1;
    kind.options.causal = how == 0;
    kind.options.local_context = how == 1 ? 9 : 0;
    kind.mask = how == 2;
    kind.key_mask = how == 3;
    kind.bias = how == 4;
    AttentionProblem p = MakeAttention(kind, 3);
    // Keys from 80 on are hidden from queries before 20.
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 20; ++i) {
        for (int64_t j = 80; j < 100; ++j) {
          const int64_t pair = (h * 100 + i) * 100 + j;
          if (how == 2) p.mask[pair] = 0;
          if (how == 4) p.bias[pair] = -INFINITY;
        }
      }
    }
    for (int64_t j = 80; j < 100 && how == 3; ++j) p.key_mask[j] = 0;
    AttentionProblem poisoned = p;
    const auto poison = [](std::vector<double>& x, int64_t width) {
      std::fill(x.begin() + 80 * 2 * width, x.end(), kNaN);
    };
    poison(poisoned.keys, p.d_key);
    poison(poisoned.values, p.d_value);
    std::vector<double> grad(100 * 2 * 7, 0.0);
    std::mt19937_64 rng(5);
    const std::vector<double> some = Random(20 * 2 * 7, rng);
    std::copy(some.begin(), some.end(), grad.begin());
    std::vector<double> poisoned_grad = grad;
    if (how != 3) {  // these rows are NaN and must not reach the others' keys
      poison(poisoned.queries, p.d_key);
      std::fill(poisoned_grad.begin() + 80 * 2 * 7, poisoned_grad.end(), kNaN);
    }
    KernelCall clean(p), dirty(poisoned);
    const std::vector<double> want = clean.Forward(serial_);
    const std::vector<double> got = dirty.Forward(serial_);
    const int64_t rows = how == 3 ? 100 : 20;
    for (int64_t i = 0; i < rows * 2 * 7; ++i) ASSERT_EQ(want[i], got[i]) << i;
    const auto wanted = clean.Backward(grad, serial_);
    const auto given = dirty.Backward(poisoned_grad, serial_);
    for (int64_t i = 0; i < rows * 2 * 5; ++i) {
      ASSERT_EQ(wanted.queries[i], given.queries[i]) << i;
    }
    if (how == 3) {
      EXPECT_EQ(wanted.keys, given.keys);
      EXPECT_EQ(wanted.values, given.values);
    }
  }
}

// A NaN query reaches its own row and the keys that it reads, nothing else.
TEST_P(BlockedAttentionTest, NaNQueryStaysInItsRow) {
  Kind kind;
  kind.seq_len = 90, kind.batch = 1, kind.heads = 1;
  kind.options.causal = true;
  AttentionProblem p = MakeAttention(kind, 3);
  KernelCall clean(p);
  const std::vector<double> want = clean.Forward(serial_);
  p.queries[10 * 5 + 2] = kNaN;
  KernelCall run(p);
  const std::vector<double> got = run.Forward(serial_);
  for (int64_t i = 0; i < 90 * 7; ++i) {
    if (i / 7 == 10) {
      EXPECT_TRUE(std::isnan(got[i]));
    } else {
      ASSERT_EQ(want[i], got[i]) << i;
    }
  }
  const auto g = run.Backward(std::vector<double>(90 * 7, 1.0), serial_);
  for (int64_t j = 0; j < 90; ++j) {
    EXPECT_EQ(j <= 10, std::isnan(g.keys[j * 5])) << j;
    EXPECT_EQ(j <= 10, std::isnan(g.values[j * 7])) << j;
  }
  // Without a gradient of its own the row sends none.
  std::vector<double> grad(90 * 7, 1.0);
  std::fill(grad.begin() + 10 * 7, grad.begin() + 11 * 7, 0.0);
  const auto wanted = clean.Backward(grad, serial_);
  const auto given = run.Backward(grad, serial_);
  EXPECT_EQ(wanted.queries, given.queries);
  EXPECT_EQ(wanted.keys, given.keys);
  EXPECT_EQ(wanted.values, given.values);
}

TEST_P(BlockedAttentionTest, EmptyRowsAreZeroAndSendNothing) {
  Kind kind;
  kind.seq_len = 80, kind.batch = 1;
  kind.options.causal = true;
  kind.options.causal_offset = -70;
  const AttentionProblem p = MakeAttention(kind, 6);
  KernelCall run(p);
  const std::vector<double> out = run.Forward(serial_);
  for (int64_t i = 0; i < 70 * 2 * 7; ++i) ASSERT_EQ(0.0, out[i]);
  std::vector<double> grad(80 * 2 * 7, 0.0);
  std::fill(grad.begin(), grad.begin() + 70 * 2 * 7, 1.0);
  const auto g = run.Backward(grad, serial_, {1, 1, 80, 80});
  for (const auto* x : {&g.queries, &g.keys, &g.values, &g.bias}) {
    for (const double v : *x) ASSERT_EQ(0.0, v);
  }
}

TEST_P(BlockedAttentionTest, NoQueriesNoKeysNoBatch) {
  for (const auto& [batch, seq_len, key_len] :
       {std::tuple(0, 3, 3), {2, 0, 3}, {2, 3, 0}}) {
    Kind kind;
    kind.batch = batch, kind.seq_len = seq_len, kind.key_len = key_len;
    const AttentionProblem p = MakeAttention(kind, 6);
    KernelCall run(p);
    const std::vector<double> out = run.Forward(serial_);
    for (const double x : out) EXPECT_EQ(0.0, x);
    const auto g = run.Backward(std::vector<double>(out.size(), 1.0), serial_,
                                {batch, 1, seq_len, key_len});
    for (const double x : g.keys) EXPECT_EQ(0.0, x);
    for (const double x : g.queries) EXPECT_EQ(0.0, x);
  }
}

TEST_P(BlockedAttentionTest, SameBitsForAnyNumberOfThreads) {
  Kind kind = Kinds().back();
  kind.batch = 3, kind.seq_len = 150, kind.options.scale = 0.4f;
  kind.options.dropout = {0.1, 2};
  kind.bias = kind.key_mask = true;
  const AttentionProblem p = MakeAttention(kind, 8);
  std::mt19937_64 rng(3);
  const std::vector<double> grad = Floats(3 * 150 * 2 * 7, rng);
  KernelCall serial(p);
  const std::vector<double> want = serial.Forward(serial_);
  const auto wanted = serial.Backward(grad, serial_, {1, 2, 150, 150});
  for (const int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    KernelCall run(p);
    EXPECT_EQ(want, run.Forward(pool));
    const auto got = run.Backward(grad, pool, {1, 2, 150, 150});
    EXPECT_EQ(wanted.queries, got.queries);
    EXPECT_EQ(wanted.keys, got.keys);
    EXPECT_EQ(wanted.values, got.values);
    EXPECT_EQ(wanted.bias, got.bias);
  }
}

// A sequence alone, and as the second of a batch with more padding: its rows
// and gradients have the same bits. So has a single query at its offset.
TEST_P(BlockedAttentionTest, SameBitsForAnyPaddingAndPlace) {
  Kind kind;
  kind.batch = 1, kind.seq_len = 90, kind.heads = 1;
  kind.options.scale = 0.5f;
  for (const bool causal : {false, true}) {
    kind.options.causal = causal;
    const AttentionProblem alone = MakeAttention(kind, 8);
    Kind wide = kind;
    wide.batch = 2, wide.seq_len = 201;
    AttentionProblem both = MakeAttention(wide, 9);
    both.key_lengths = {170, 90};
    const auto place = [](const std::vector<double>& from, int64_t width,
                          std::vector<double>& to) {
      std::fill(to.begin() + 201 * width, to.end(), kNaN);
      std::copy(from.begin(), from.end(), to.begin() + 201 * width);
    };
    place(alone.keys, 5, both.keys);
    place(alone.values, 7, both.values);
    std::vector<double> queries = both.queries;
    place(alone.queries, 5, queries);
    // Padded queries are numbers: rows of their own.
    std::copy(queries.begin() + 201 * 5, queries.begin() + (201 + 90) * 5,
              both.queries.begin() + 201 * 5);
    KernelCall one(alone), two(both);
    const std::vector<double> want = one.Forward(serial_);
    const std::vector<double> got = two.Forward(serial_);
    for (int64_t i = 0; i < 90 * 7; ++i) {
      ASSERT_EQ(want[i], got[201 * 7 + i]) << i;
    }
    std::mt19937_64 rng(4);
    const std::vector<double> grad = Floats(90 * 7, rng);
    std::vector<double> padded = Floats(2 * 201 * 7, rng);
    std::fill(padded.begin() + 201 * 7, padded.end(), 0.0);
    std::copy(grad.begin(), grad.end(), padded.begin() + 201 * 7);
    const auto wanted = one.Backward(grad, serial_);
    const auto given = two.Backward(padded, serial_);
    for (int64_t i = 0; i < 90 * 5; ++i) {
      ASSERT_EQ(wanted.queries[i], given.queries[201 * 5 + i]) << i;
      ASSERT_EQ(wanted.keys[i], given.keys[201 * 5 + i]) << i;
    }
    for (int64_t i = 0; i < 90 * 7; ++i) {
      ASSERT_EQ(wanted.values[i], given.values[201 * 7 + i]) << i;
    }
    AttentionProblem single = alone;
    single.seq_len = 1;
    single.options.causal_offset = 77;
    single.queries.assign(alone.queries.begin() + 77 * 5,
                          alone.queries.begin() + 78 * 5);
    const std::vector<double> row = KernelCall(single).Forward(serial_);
    for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(want[77 * 7 + i], row[i]);
  }
}

// Against a full sort of the reference's weights; every third key is a copy of
// the one before it, so that ties are everywhere.
TEST_P(BlockedAttentionTest, TopkTakesTheHighestScoresAndTheFirstOfEqualOnes) {
  Kind kind;
  kind.seq_len = 100, kind.key_len = 150;
  kind.key_mask = kind.options.causal = true;
  kind.options.causal_offset = 20;
  for (const bool rich : {false, true}) {
    kind.mask = kind.bias = rich;
    AttentionProblem p = MakeAttention(kind, 5);
    const int64_t row = p.heads * p.d_key;
    for (int64_t j = 2; j < 150 && !rich; j += 3) {
      for (int64_t b = 0; b < 2; ++b) {
        const auto from = p.keys.begin() + (b * 150 + j - 1) * row;
        std::copy(from, from + row, from + row);
      }
    }
    const std::vector<double> weights = reference::SoftmaxAttention(p).weights;
    for (const int64_t width : {1, 7, 32, 150}) {
      KernelCall kernel(p);
      const std::vector<int64_t> got = kernel.Topk(width, serial_);
      ThreadPool pool(3);
      EXPECT_EQ(got, kernel.Topk(width, pool));
      for (int64_t r = 0; r < 2 * 2 * 100; ++r) {
        std::vector<int64_t> want;
        const double* of_row = weights.data() + r * 150;
        for (int64_t j = 0; j < 150; ++j) {
          if (of_row[j] > 0) want.push_back(j);
        }
        std::stable_sort(want.begin(), want.end(), [&](int64_t a, int64_t b) {
          return of_row[a] > of_row[b];
        });
        want.resize(std::min<size_t>(want.size(), width));
        std::sort(want.begin(), want.end());
        want.resize(width, -1);
        ASSERT_EQ(want, std::vector<int64_t>(got.begin() + r * width,
                                             got.begin() + (r + 1) * width))
            << "row " << r << " width " << width;
      }
    }
  }
}

TEST(BlockedAttentionErrors, NameTheArgument) {
  Kind kind;
  kind.seq_len = 6;
  SerialExecutor serial;
  AttentionProblem p = MakeAttention(kind, 1);
  p.key_lengths = {3, 7};
  try {
    KernelCall(p).Forward(serial);
    FAIL() << "a length beyond the keys was taken";
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("key_lengths[1]"),
              std::string::npos);
  }
  p.key_lengths.clear();
  p.options.local_context = -1;
  EXPECT_THROW(KernelCall(p).Forward(serial), ArgumentError);
  p.options.local_context = 0;
  p.options.dropout.probability = 1.0;
  EXPECT_THROW(KernelCall(p).Forward(serial), ArgumentError);
  float row[64] = {};
  BlockedAttentionInputs in;
  in.queries = in.keys = in.values = TensorView::Dense(row, 1, 2, 2, 4);
  BlockedAttentionOutputs out;
  out.out = in.queries;
  in.keys.size[3] = 3;
  EXPECT_THROW(CheckBlockedAttention({}, in, out), ShapeError);
  in.keys = in.queries;
  in.values.dtype = DType::kBF16;
  EXPECT_THROW(CheckBlockedAttention({}, in, out), DTypeError);
}

INSTANTIATE_TEST_SUITE_P(Targets, BlockedAttentionTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn::testing
