// Problems of blocked attention for its tests, and the kernel run on them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/aligned_buffer.h"
#include "kernels/linear_attention/test_problem.h"
#include "kernels/simd_target.h"
#include "kernels/softmax_attention/blocked_attention.h"
#include "kernels/softmax_attention/blocked_attention_ref.h"

namespace tarn::testing {

using reference::AttentionProblem;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Kind {
  int64_t batch = 2, seq_len = 1, key_len = -1, heads = 2, d_key = 5,
          d_value = 7;
  BlockedAttentionOptions options;
  bool key_mask = false, key_lengths = false, mask = false, bias = false,
       sinks = false;
};

inline std::vector<double> Floats(int64_t n, std::mt19937_64& rng) {
  std::vector<double> x = Random(n, rng);
  for (double& v : x) v = static_cast<float>(v);
  return x;
}

inline AttentionProblem MakeAttention(const Kind& kind, uint64_t seed) {
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
  if (kind.sinks) p.sinks = Floats(p.heads, rng);
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
        sinks_(p.sinks.begin(), p.sinks.end()),
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
    if (!p.sinks.empty()) in_.sinks = sinks_.data();
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
  // Call after Forward. `bias_size`: the shape that its gradient is summed to.
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
    std::vector<float> grad_sinks(p_.batch * p_.sinks.size(), NAN);
    if (!p_.sinks.empty()) g.grad_sinks = grad_sinks.data();
    AlignedBuffer<char> scratch = Scratch(executor.width(), true);
    BlockedAttentionBackward(p_.options, in_, g, executor, scratch.data());
    for (const auto* t : {&grad_queries_, &grad_keys_, &grad_values_}) {
      EXPECT_TRUE(t->GuardsIntact());
    }
    std::vector<double> sinks(p_.sinks.size(), 0.0);
    for (size_t i = 0; i < grad_sinks.size(); ++i) {
      sinks[i % sinks.size()] += grad_sinks[i];
    }
    return {All(grad_queries_),
            All(grad_keys_),
            All(grad_values_),
            {grad_bias.begin(), grad_bias.end()},
            sinks};
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
  std::vector<float> bias_, sinks_, statistics_;
  BlockedAttentionInputs in_;
};

// Largest difference, relative to the largest entry or 1.
inline double Difference(const std::vector<double>& want,
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
inline std::vector<double> SumTo(const AttentionProblem& p,
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

inline std::vector<Kind> Kinds() {
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
  for (const int64_t window : {1, 7, 64, 100, 1000}) {
    add([&](Kind& k) {
      k.seq_len = 140, k.options.causal = true, k.options.window = window;
    });
    add([&](Kind& k) {
      k.seq_len = 70, k.key_len = 150, k.options.window = window;
      k.options.causal = true, k.options.causal_offset = 80;
    });
  }
  add([](Kind& k) { k.seq_len = 70, k.options.softcap = 0.5f; });
  add([](Kind& k) {
    k.seq_len = 70, k.key_len = 75, k.options.softcap = 2.0f;
    k.bias = k.key_mask = true;
  });
  add([](Kind& k) { k.seq_len = 70, k.options.causal = k.sinks = true; });
  add([](Kind& k) {
    k.seq_len = 140, k.options.causal = k.sinks = k.bias = k.mask = true;
    k.options.window = 9, k.options.softcap = 1.0f;
    k.options.dropout = {0.2, 4};
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

}  // namespace tarn::testing
