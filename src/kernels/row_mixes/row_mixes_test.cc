// Both passes against the double reference, on every SIMD target.
#include "kernels/row_mixes/row_mixes.h"

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/row_mixes/row_mixes_ref.h"
#include "kernels/row_tests.h"

namespace tarn::testing {
namespace {

using reference::RowMixProblem;
using Columns = std::vector<std::vector<double>>;

// The dtypes of rows and weights.
struct MixTypes {
  DType rows, weights;
};
constexpr MixTypes kMixTypes[] = {
    {DType::kF32, DType::kF32},  {DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kF32}, {DType::kF16, DType::kF16},
    {DType::kF32, DType::kBF16},
};

RowMixProblem MakeMixes(int count, int64_t rows, int64_t width,
                        MixTypes types) {
  std::mt19937_64 rng(count + 10 * rows + 100 * width);
  RowMixProblem p;
  p.x = RandomOf(types.rows, rows * width, rng);
  p.delta = RandomOf(types.rows, rows * width, rng);
  for (int j = 0; j < count; ++j) {
    p.weights.push_back(RandomOf(types.weights, width, rng));
  }
  return p;
}

Columns MakeFlows(const RowMixProblem& p, DType dtype) {
  std::mt19937_64 rng(7);
  Columns flows;
  for (size_t j = 0; j < p.weights.size(); ++j) {
    flows.push_back(RandomOf(dtype, static_cast<int64_t>(p.x.size()), rng));
  }
  return flows;
}

struct MixOutcome {
  Columns outs;
  std::vector<double> dx, ddelta;
  std::vector<float> dweights;  // [count, width]
  bool operator==(const MixOutcome&) const = default;
};

// Results begin as NaN, between guards; spread: tensors begin off alignment.
MixOutcome RunMixes(const RowMixProblem& p, const Columns& flows,
                    MixTypes types, bool spread, Executor& executor) {
  const int count = static_cast<int>(p.weights.size());
  const int64_t width = static_cast<int64_t>(p.weights[0].size());
  const int64_t rows = static_cast<int64_t>(p.x.size()) / width;
  // Dense: one row of all entries.
  const auto tensor = [&](const std::vector<double>& values, DType dtype,
                          int64_t entries) {
    GuardedTensor x(1, 1, 1, entries, dtype, spread);
    x.Fill(0, 0, values);
    return x;
  };
  const GuardedTensor x = tensor(p.x, types.rows, rows * width);
  const GuardedTensor delta = tensor(p.delta, types.rows, rows * width);
  RowMixInputs in;
  in.dtype = types.rows;
  in.weight_dtype = types.weights;
  in.count = count;
  in.rows = rows;
  in.width = width;
  in.x = x.view().data;
  in.delta = delta.view().data;
  std::vector<GuardedTensor> weights, outs, grads;
  void* out_data[kMostMixes];
  RowMixGradients grad;
  for (int j = 0; j < count; ++j) {
    weights.push_back(tensor(p.weights[j], types.weights, width));
    outs.push_back(tensor({}, types.rows, rows * width));
    grads.push_back(tensor(flows[j], types.rows, rows * width));
    in.weights[j] = weights.back().view().data;
    out_data[j] = outs.back().view().data;
    grad.grad_outs[j] = grads.back().view().data;
  }
  const GuardedTensor dx = tensor({}, types.rows, rows * width);
  const GuardedTensor ddelta = tensor({}, types.rows, rows * width);
  MixOutcome found;
  found.dweights.assign(count * width, NAN);
  grad.grad_x = dx.view().data;
  grad.grad_delta = ddelta.view().data;
  grad.grad_weights = found.dweights.data();
  const Workspace forward = MakeWorkspace(RowMixesForwardBytes(in));
  RowMixesForward(in, out_data, executor, forward.get());
  const Workspace backward = MakeWorkspace(RowMixesGradientBytes(in));
  RowMixesBackward(in, grad, executor, backward.get());
  const auto read = [](const GuardedTensor& tensor) {
    EXPECT_TRUE(tensor.GuardsIntact());
    return tensor.Read(0, 0, 1);
  };
  for (const GuardedTensor& out : outs) found.outs.push_back(read(out));
  found.dx = read(dx);
  found.ddelta = read(ddelta);
  return found;
}

void CheckMixes(int count, int64_t rows, int64_t width, MixTypes types,
                bool spread) {
  const RowMixProblem p = MakeMixes(count, rows, width, types);
  const Columns flows = MakeFlows(p, types.rows);
  SerialExecutor serial;
  const MixOutcome got = RunMixes(p, flows, types, spread, serial);
  const Columns wanted = reference::RowMixes(p);
  const RowMixProblem d = reference::RowMixesBackward(p, flows);
  const double sum = 3e-7 * std::sqrt(static_cast<double>(rows) + 1);
  for (int j = 0; j < count; ++j) {
    const std::string what = StrCat("of mix ", j);
    ExpectRounded(got.outs[j], wanted[j], types.rows, 1e-6, "out " + what);
    ExpectRounded({got.dweights.begin() + j * width,
                   got.dweights.begin() + (j + 1) * width},
                  d.weights[j], DType::kF32, 10 * sum, "weights " + what);
  }
  ExpectRounded(got.dx, d.x, types.rows, 3e-6, "x");
  ExpectRounded(got.ddelta, d.delta, types.rows, 3e-6, "delta");
}

TEST(RowMixesReference, AgreesWithFiniteDifferences) {
  RowMixProblem p = MakeMixes(3, 4, 5, {DType::kF32, DType::kF32});
  const Columns flows = MakeFlows(p, DType::kF32);
  const RowMixProblem d = reference::RowMixesBackward(p, flows);
  const auto value = [&] {
    const Columns outs = reference::RowMixes(p);
    double sum = 0;
    for (size_t j = 0; j < outs.size(); ++j) sum += Dot(outs[j], flows[j]);
    return sum;
  };
  ExpectSlopes(value, p.x, d.x);
  ExpectSlopes(value, p.delta, d.delta);
  for (int j = 0; j < 3; ++j) ExpectSlopes(value, p.weights[j], d.weights[j]);
}

class RowMixesTest : public SimdTargetTest {};

TEST_P(RowMixesTest, MatchesTheReference) {
  for (const MixTypes types : kMixTypes) {
    for (const int64_t width : {1, 3, 16, 17, 64, 100, 300, 515}) {
      for (const int64_t rows : {0, 1, 5}) {
        for (const int count : {1, 6}) {
          CheckMixes(count, rows, width, types, width % 2 != 0);
        }
      }
    }
    CheckMixes(kMostMixes, 1500, 37, types, true);
  }
}

TEST_P(RowMixesTest, ThreadsAndAlignmentChangeNoBit) {
  SerialExecutor serial;
  for (const MixTypes types : {kMixTypes[0], kMixTypes[1]}) {
    const RowMixProblem p = MakeMixes(3, 900, 71, types);
    const Columns flows = MakeFlows(p, types.rows);
    ExpectSameBits(RunMixes(p, flows, types, false, serial),
                   [&](Executor& executor, bool spread) {
                     return RunMixes(p, flows, types, spread, executor);
                   });
  }
}

TEST_P(RowMixesTest, NaNStaysInItsEntry) {
  const MixTypes types = {DType::kBF16, DType::kF32};
  RowMixProblem p = MakeMixes(2, 3, 70, types);
  const Columns flows = MakeFlows(p, types.rows);
  SerialExecutor serial;
  const MixOutcome clean = RunMixes(p, flows, types, false, serial);
  p.delta[75] = std::nan("");
  const MixOutcome run = RunMixes(p, flows, types, false, serial);
  EXPECT_EQ(clean.dx, run.dx);
  EXPECT_EQ(clean.ddelta, run.ddelta);
  for (size_t i = 0; i < p.x.size(); ++i) {
    if (i == 75) {
      EXPECT_TRUE(std::isnan(run.outs[1][i]));
    } else {
      EXPECT_EQ(clean.outs[1][i], run.outs[1][i]);
    }
  }
  for (size_t i = 0; i < run.dweights.size(); ++i) {
    EXPECT_EQ(i % 70 == 5, std::isnan(run.dweights[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RowMixesTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(RowMixesArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float x = 1.0f, y = 5.0f;
  RowMixInputs in;
  in.count = in.rows = in.width = 1;
  in.x = in.delta = in.weights[0] = &x;
  void* out[] = {&y};
  const auto where = [&](const RowMixInputs& inputs, void* const* outs) {
    return ErrorOf([&] { RowMixesForward(inputs, outs, executor, nullptr); })
        .where();
  };
  RowMixInputs bad = in;
  bad.width = -1;
  EXPECT_EQ("row_mixes: x", where(bad, out));
  for (const int count : {0, kMostMixes + 1}) {
    bad = in;
    bad.count = count;
    EXPECT_EQ("row_mixes: weights", where(bad, out));
  }
  bad = in;
  bad.x = nullptr;
  EXPECT_EQ("row_mixes: x", where(bad, out));
  bad = in;
  bad.delta = nullptr;
  EXPECT_EQ("row_mixes: delta", where(bad, out));
  bad = in;
  bad.weights[0] = nullptr;
  EXPECT_EQ("row_mixes: weights[0]", where(bad, out));
  void* absent[] = {nullptr};
  EXPECT_EQ("row_mixes: outs[0]", where(in, absent));
  RowMixGradients grad;
  grad.grad_outs[0] = &x;
  grad.grad_x = grad.grad_delta = &y;
  const auto backward = [&] {
    return ErrorOf([&] { RowMixesBackward(in, grad, executor, nullptr); })
        .where();
  };
  EXPECT_EQ("row_mixes: grad_weights", backward());
  grad.grad_delta = nullptr;
  EXPECT_EQ("row_mixes: grad_delta", backward());
  grad.grad_outs[0] = nullptr;
  EXPECT_EQ("row_mixes: grad_outs[0]", backward());
  EXPECT_EQ(5.0f, y);
}

}  // namespace
}  // namespace tarn::testing
