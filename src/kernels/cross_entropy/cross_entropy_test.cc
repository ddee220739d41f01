// Both passes against the double reference, on every SIMD target.
#include "kernels/cross_entropy/cross_entropy.h"

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/cross_entropy/cross_entropy_ref.h"
#include "kernels/row_tests.h"

namespace tarn::testing {
namespace {

using reference::CrossEntropyProblem;

// Every option by itself and all together.
std::vector<CrossEntropyOptions> LossForms() {
  return {{0, 1, 0, 0, -100},   {0.1, 1, 0, 0, -100}, {0, 2, 0, 0, -100},
          {0, 1, 0.3, 0, -100}, {0, 1, 0, 4, -100},   {0.2, 1.5, 0.1, 5, 2},
          {0, -1.5, 0, 3, -100}};
}

CrossEntropyProblem MakeLoss(const CrossEntropyOptions& options, int64_t rows,
                             int64_t classes, DType dtype) {
  std::mt19937_64 rng(rows + 100 * classes);
  CrossEntropyProblem p{
      options, classes, RandomOf(dtype, rows * classes, rng, 2.0), {}};
  for (int64_t row = 0; row < rows; ++row) {
    p.targets.push_back(row == 2 ? options.ignored
                                 : static_cast<int64_t>(rng() % classes));
  }
  return p;
}

struct LossOutcome {
  std::vector<float> losses, squares, moments;
  std::vector<double> dx;
  bool operator==(const LossOutcome&) const = default;
};

LossOutcome RunLoss(const CrossEntropyProblem& p, const std::vector<double>& g,
                    DType dtype, bool spread, Executor& executor) {
  const int64_t rows = static_cast<int64_t>(p.targets.size());
  GuardedTensor x(1, rows, 1, p.classes, dtype, spread);
  x.Fill(0, 0, p.logits);
  const GuardedTensor dx(1, rows, 1, p.classes, dtype, false);
  const std::vector<float> grad(g.begin(), g.end());
  CrossEntropyInputs in;
  in.logits = x.view().data;
  in.stride = x.view().stride[1];
  in.dtype = dtype;
  in.rows = rows;
  in.classes = p.classes;
  in.targets = p.targets.data();
  LossOutcome r;
  r.losses.assign(rows, NAN);
  r.squares.assign(rows, NAN);
  r.moments.assign(2 * rows, NAN);
  CrossEntropyForward(p.options, in, r.losses.data(), r.squares.data(),
                      r.moments.data(), executor);
  CrossEntropyBackward(p.options, in, r.moments.data(), grad.data(),
                       dx.view().data, executor);
  EXPECT_TRUE(dx.GuardsIntact());
  r.dx = dx.Read(0, 0, rows);
  return r;
}

void CheckLoss(const CrossEntropyOptions& options, int64_t rows,
               int64_t classes, DType dtype, bool spread) {
  const CrossEntropyProblem p = MakeLoss(options, rows, classes, dtype);
  std::mt19937_64 rng(3);
  const std::vector<double> grad = RandomOf(DType::kF32, rows, rng);
  SerialExecutor serial;
  const LossOutcome got = RunLoss(p, grad, dtype, spread, serial);
  const auto wanted = reference::CrossEntropy(p);
  const auto dx = reference::CrossEntropyBackward(p, grad);
  for (int64_t row = 0; row < rows; ++row) {
    const double room = 2e-6 * (1 + std::abs(wanted.losses[row]));
    EXPECT_NEAR(wanted.losses[row], got.losses[row], room);
    EXPECT_NEAR(wanted.squares[row], got.squares[row], room);
  }
  const double floor = dtype == DType::kF16 ? 0x1p-25 : 0;  // of its subnormals
  for (size_t i = 0; i < dx.size(); ++i) {
    ASSERT_NEAR(
        dx[i], got.dx[i],
        (1.001 * RoundingUnit(dtype) + 4e-6) * std::abs(dx[i]) + 2e-6 + floor)
        << i;
  }
}

TEST(CrossEntropyReference, AgreesWithFiniteDifferences) {
  for (const CrossEntropyOptions& options : LossForms()) {
    CrossEntropyProblem p = MakeLoss(options, 4, 5, DType::kF32);
    std::mt19937_64 rng(1);
    const std::vector<double> grad = Random(4, rng);
    const auto dx = reference::CrossEntropyBackward(p, grad);
    const auto value = [&] {
      const auto found = reference::CrossEntropy(p);
      return Dot({found.losses.begin(), found.losses.end()}, grad);
    };
    ExpectSlopes(value, p.logits, dx);
  }
}

class CrossEntropyTest : public SimdTargetTest {};

TEST_P(CrossEntropyTest, EveryOptionMatchesTheReference) {
  for (const CrossEntropyOptions& options : LossForms()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int64_t classes : {1, 2, 7, 16, 33, 257}) {
        if (options.ignored >= classes) continue;
        for (const int64_t rows : {0, 1, 5}) {
          CheckLoss(options, rows, classes, dtype, classes % 2 != 0);
        }
      }
    }
    CheckLoss(options, 6, 20000, DType::kF32, false);
  }
}

TEST_P(CrossEntropyTest, ThreadsAndLayoutChangeNoBit) {
  SerialExecutor serial;
  const CrossEntropyProblem p =
      MakeLoss({0.1, 1, 0.1, 0, -100}, 300, 500, DType::kF32);
  const std::vector<double> grad(300, 0.5);
  const LossOutcome one = RunLoss(p, grad, DType::kF32, false, serial);
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(one, RunLoss(p, grad, DType::kF32, true, pool));
  }
}

// Large logits keep their digits, one of minus infinity has probability 0, and
// a NaN stays in its row.
TEST_P(CrossEntropyTest, RowsOfAnySize) {
  SerialExecutor serial;
  CrossEntropyProblem p{{}, 3, {1e30, 1e30, 0, 1000, 1001, 999}, {0, 1}};
  LossOutcome run = RunLoss(p, {1, 1}, DType::kF32, false, serial);
  EXPECT_NEAR(std::log(2.0), run.losses[0], 1e-6);
  EXPECT_NEAR(std::log1p(std::exp(-1) + std::exp(-2)), run.losses[1], 1e-6);
  p.logits = {-INFINITY, 1, 1, NAN, 0, 0};
  p.targets = {1, 0};
  run = RunLoss(p, {1, 1}, DType::kF32, false, serial);
  EXPECT_NEAR(std::log(2.0), run.losses[0], 1e-6);
  EXPECT_EQ(0.0, run.dx[0]);
  EXPECT_TRUE(std::isnan(run.losses[1]) && std::isnan(run.dx[4]));
}

INSTANTIATE_TEST_SUITE_P(Targets, CrossEntropyTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(CrossEntropyArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  const float logits[2] = {0, 1};
  float result = 5.0f, moments[2];
  int64_t target = 0;
  CrossEntropyInputs in;
  in.logits = logits;
  in.stride = in.classes = 2;
  in.rows = 1;
  in.targets = &target;
  const auto message = [&](const CrossEntropyInputs& inputs, float* losses) {
    try {
      CrossEntropyForward({}, inputs, losses, &result, moments, executor);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CrossEntropyInputs bad = in;
  bad.classes = 0;
  EXPECT_EQ(
      "cross_entropy: logits: want [rows, classes], 1 class or more, got "
      "[1, 0]",
      message(bad, &result));
  bad = in;
  bad.targets = nullptr;
  EXPECT_EQ("cross_entropy: targets: want data, got a null pointer",
            message(bad, &result));
  EXPECT_EQ("cross_entropy: losses: want data, got a null pointer",
            message(in, nullptr));
  for (const int64_t wrong : {-1, 2}) {
    target = wrong;
    EXPECT_EQ(
        StrCat("cross_entropy: target[0]: want 0 to 1 or -100, got ", wrong),
        message(in, &result));
  }
  EXPECT_EQ(5.0f, result);
}

}  // namespace
}  // namespace tarn::testing
