// Both passes against the double reference, on every SIMD target.
#include "kernels/token_shift/token_shift.h"

#include <cstring>

#include "core/error.h"
#include "core/test_util.h"
#include "kernels/row_tests.h"
#include "kernels/test_vectors.h"
#include "kernels/token_shift/token_shift_ref.h"

namespace tarn::testing {
namespace {

using Problem = reference::TokenShiftProblem;

struct ShiftOptions {
  DType dtype = DType::kF32;
  bool before = true, weight = true, packed = false;
};

Problem MakeShift(std::vector<int64_t> bounds, int64_t width,
                  const ShiftOptions& o) {
  std::mt19937_64 rng(bounds.back() + 100 * width);
  const int64_t sequences = static_cast<int64_t>(bounds.size()) - 1;
  Problem p;
  p.width = width;
  p.bounds = std::move(bounds);
  p.x = RandomOf(o.dtype, p.bounds.back() * width, rng);
  if (o.before) p.before = RandomOf(o.dtype, sequences * width, rng);
  if (o.weight) p.weight = RandomOf(DType::kF32, width, rng);
  return p;
}

struct ShiftOutcome {
  std::vector<double> y, x, before;
  std::vector<float> weight;
  bool operator==(const ShiftOutcome&) const = default;
};

ShiftOutcome RunShift(const Problem& p, const std::vector<double>& flow,
                      const ShiftOptions& o, Executor& executor, bool spread) {
  const int64_t rows = p.bounds.back();
  const int64_t sequences = static_cast<int64_t>(p.bounds.size()) - 1;
  const auto tensor = [&](int64_t count, const std::vector<double>& values,
                          bool apart) {
    GuardedTensor made(1, count, 1, p.width, o.dtype, apart);
    made.Fill(0, 0, values);
    return made;
  };
  const GuardedTensor x = tensor(rows, p.x, spread),
                      before = tensor(sequences, p.before, false),
                      dy = tensor(rows, flow, false),
                      y = tensor(rows, {}, false), dx = tensor(rows, {}, false),
                      d_before = tensor(sequences, {}, false);
  const std::vector<float> weight(p.weight.begin(), p.weight.end());
  TokenShiftCall call;
  call.dtype = o.dtype;
  call.sequences = sequences;
  call.width = p.width;
  if (o.packed) {
    call.bounds = p.bounds.data();
  } else if (sequences > 0) {
    call.seq_len = rows / sequences;
  }
  call.x = x.view().data;
  call.stride = x.view().stride[1];
  if (o.before) call.before = before.view().data;
  if (o.weight) call.weight = weight.data();
  ShiftOutcome found;
  found.weight.assign(weight.size(), NAN);
  TokenShiftForward(call, y.view().data, executor);
  const Workspace workspace =
      MakeWorkspace(TokenShiftGradientBytes(call, o.weight));
  TokenShiftBackward(call,
                     {dy.view().data, dx.view().data,
                      o.before ? d_before.view().data : nullptr,
                      o.weight ? found.weight.data() : nullptr},
                     executor, workspace.get());
  EXPECT_TRUE(y.GuardsIntact() && dx.GuardsIntact() && d_before.GuardsIntact());
  found.y = y.Read(0, 0, rows);
  found.x = dx.Read(0, 0, rows);
  if (o.before) found.before = d_before.Read(0, 0, sequences);
  return found;
}

void CheckShift(const std::vector<int64_t>& bounds, int64_t width,
                const ShiftOptions& o, bool spread) {
  const Problem p = MakeShift(bounds, width, o);
  std::mt19937_64 rng(7);
  const std::vector<double> flow =
      RandomOf(o.dtype, bounds.back() * width, rng);
  SerialExecutor serial;
  const ShiftOutcome got = RunShift(p, flow, o, serial, spread);
  const Problem d = reference::TokenShiftBackward(p, flow);
  ExpectRounded(got.y, reference::TokenShift(p), o.dtype, 2e-6, "y");
  ExpectRounded(got.x, d.x, o.dtype, 2e-6, "x");
  ExpectRounded(got.before, d.before, o.dtype, 2e-6, "before");
  const double size =
      Rms(d.weight.data(), static_cast<int64_t>(d.weight.size()));
  ExpectRounded({got.weight.begin(), got.weight.end()}, d.weight, DType::kF32,
                1e-5 * (1 + size), "weight");
}

TEST(TokenShiftReference, AgreesWithFiniteDifferences) {
  for (const bool weight : {false, true}) {
    Problem p = MakeShift({0, 2, 2, 5}, 3, {DType::kF32, true, weight, true});
    std::mt19937_64 rng(1);
    const std::vector<double> flow = Random(15, rng);
    const Problem d = reference::TokenShiftBackward(p, flow);
    const auto value = [&] { return Dot(reference::TokenShift(p), flow); };
    ExpectSlopes(value, p.x, d.x);
    ExpectSlopes(value, p.before, d.before);
    ExpectSlopes(value, p.weight, d.weight);
  }
}

class TokenShiftTest : public SimdTargetTest {};

TEST_P(TokenShiftTest, MatchesTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool before : {false, true}) {
      for (const bool weight : {false, true}) {
        for (const int64_t width : {1, 3, 17, 64, 100}) {
          const ShiftOptions even = {dtype, before, weight, false};
          CheckShift({0}, width, even, false);  // no sequence
          CheckShift({0, 0, 0}, width, even, false);
          CheckShift({0, 1, 2}, width, even, true);
          CheckShift({0, 5, 10, 15}, width, even, true);
          // The first, one in the middle and the last ones have no token.
          CheckShift({0, 0, 3, 4, 4, 9, 9, 9}, width,
                     {dtype, before, weight, true}, true);
        }
        CheckShift({0, 700, 1400}, 37, {dtype, before, weight, false}, true);
        CheckShift({0, 1, 900, 901, 1400}, 37, {dtype, before, weight, true},
                   true);
      }
    }
  }
}

TEST_P(TokenShiftTest, ThreadsChangeNoBit) {
  const ShiftOptions o = {DType::kF32, true, true, true};
  const Problem p = MakeShift({0, 7, 880, 880, 1800}, 37, o);
  std::mt19937_64 rng(5);
  const std::vector<double> flow = Random(1800 * 37, rng);
  SerialExecutor serial;
  ExpectSameBits(RunShift(p, flow, o, serial, false),
                 [&](Executor& executor, bool spread) {
                   return RunShift(p, flow, o, executor, spread);
                 });
}

// The runtime's function has the bits of the pass, also in the weights' place.
TEST_P(TokenShiftTest, OneRow) {
  for (const int64_t width : {1, 7, 16, 33, 128}) {
    const std::vector<float> x = Normals(width, 1), before = Normals(width, 2),
                             weight = Normals(width, 3);
    std::vector<float> passed(width, NAN), y = weight;
    y.push_back(77.0f);
    TokenShiftCall call;
    call.sequences = call.seq_len = 1;
    call.width = width;
    call.x = x.data();
    call.before = before.data();
    call.weight = weight.data();
    SerialExecutor serial;
    TokenShiftForward(call, passed.data(), serial);
    ShiftedRow(x.data(), before.data(), y.data(), width, y.data());
    EXPECT_EQ(0, std::memcmp(passed.data(), y.data(), width * 4));
    EXPECT_EQ(77.0f, y.back());
    for (int64_t i = 0; i < width; ++i) {  // no fused operation on any target
      const float product = weight[i] * (before[i] - x[i]);
      EXPECT_EQ(x[i] + product, y[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, TokenShiftTest,
                         ::testing::ValuesIn(SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(TokenShiftArguments, RefusedBeforeWork) {
  SerialExecutor executor;
  float x = 1.0f, y = 5.0f;
  TokenShiftCall call;
  call.sequences = call.seq_len = call.width = 1;
  call.x = &x;
  const auto where = [&](const TokenShiftCall& given, void* out) {
    return ErrorOf([&] { TokenShiftForward(given, out, executor); }).where();
  };
  TokenShiftCall bad = call;
  bad.seq_len = -1;
  EXPECT_EQ("token_shift: x", where(bad, &y));
  bad = call;
  bad.x = nullptr;
  EXPECT_EQ("token_shift: x", where(bad, &y));
  EXPECT_EQ("token_shift: y", where(call, nullptr));
  EXPECT_EQ("token_shift: grad_x", ErrorOf([&] {
                                     TokenShiftBackward(call, {&x}, executor,
                                                        nullptr);
                                   }).where());
  EXPECT_EQ(5.0f, y);
}

}  // namespace
}  // namespace tarn::testing
