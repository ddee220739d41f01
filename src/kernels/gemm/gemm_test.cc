#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "kernels/aligned_buffer.h"
#include "kernels/gemm/gemm_ref.h"
#include "kernels/reversed_executor.h"
#include "kernels/simd_target.h"
#include "kernels/test_vectors.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A problem in its own memory: rows are `gap` floats longer than needed, and
// the floats between them are NaN.
struct Memory {
  std::vector<float> a, b, c;
  GemmProblem problem;

  Memory(int64_t rows, int64_t columns, int64_t depth, bool a_transposed,
         bool b_transposed, int64_t gap = 3) {
    problem.rows = rows;
    problem.columns = columns;
    problem.depth = depth;
    problem.a = Operand(a, a_transposed ? depth : rows,
                        a_transposed ? rows : depth, gap, a_transposed, 1);
    problem.b = Operand(b, b_transposed ? columns : depth,
                        b_transposed ? depth : columns, gap, b_transposed, 2);
    problem.c_stride = columns + gap;
    c.assign(static_cast<size_t>(rows * problem.c_stride + 1), kNaN);
    problem.c = c.data();
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::vector<float> Run(Executor& executor) {
    std::fill(c.begin(), c.end(), kNaN);
    AlignedBuffer<float> workspace(GemmWorkspaceFloats(executor));
    Gemm(problem, workspace.data(), executor);
    return Dense();
  }

  // The result; the floats between its rows must be unchanged.
  std::vector<float> Dense() const {
    std::vector<float> dense;
    for (size_t i = 0; i < c.size(); ++i) {
      const int64_t column = static_cast<int64_t>(i) % problem.c_stride;
      if (column < problem.columns && i + 1 < c.size()) {
        dense.push_back(c[i]);
      } else {
        EXPECT_TRUE(std::isnan(c[i])) << i;
      }
    }
    return dense;
  }

 private:
  static GemmOperand Operand(std::vector<float>& to, int64_t rows,
                             int64_t length, int64_t gap, bool transposed,
                             uint64_t seed) {
    const int64_t stride = length + gap;
    const std::vector<float> values = testing::Normals(rows * length, seed);
    to.assign(static_cast<size_t>(rows * stride + 1), kNaN);
    for (int64_t i = 0; i < rows * length; ++i) {
      to[static_cast<size_t>(i / length * stride + i % length + 1)] =
          values[static_cast<size_t>(i)];
    }
    return {to.data() + 1, stride, transposed};  // misaligned
  }
};

void ExpectClose(const std::vector<double>& want, const std::vector<float>& got,
                 int64_t depth) {
  ASSERT_EQ(want.size(), got.size());
  const double bound = 2e-6 * std::sqrt(static_cast<double>(depth) + 1);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(want[i], got[i], bound * (1 + std::fabs(want[i]))) << i;
  }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

TEST(GemmTest, IsTheDefinitionForEverySizeAndForm) {
  SerialExecutor serial;
  testing::ReversedExecutor reversed;
  for (const std::string& target : SimdTargets()) {
    ForceSimdTarget(target);
    for (const int64_t rows : {0, 1, 5, 6, 13, 197}) {
      for (const int64_t columns : {0, 1, 15, 64, 130}) {
        for (const int64_t depth : {0, 1, 16, 31, 128, 261}) {
          for (const bool a : {false, true}) {
            for (const bool b : {false, true}) {
              SCOPED_TRACE(StrCat(target, " ", rows, " ", columns, " ", depth,
                                  " ", a, " ", b));
              Memory memory(rows, columns, depth, a, b);
              const std::vector<float> got = memory.Run(serial);
              ExpectClose(GemmRef(memory.problem), got, depth);
              ASSERT_TRUE(SameBits(got, memory.Run(reversed)));
            }
          }
        }
      }
    }
  }
  ResetSimdTarget();
}

TEST(GemmTest, LongSumsStayExactWhereOneChainWouldNot) {
  // 40,000 products of numbers near one: a single chain loses four digits.
  Memory memory(7, 66, 40000, /*a_transposed=*/true, /*b_transposed=*/false);
  for (float& x : memory.a) x = 1.0f + 0.01f * x;
  for (float& x : memory.b) x = 1.0f + 0.01f * x;
  ThreadPool pool(2);
  const std::vector<float> got = memory.Run(pool);
  const std::vector<double> want = GemmRef(memory.problem);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i] / want[i], 1.0, 3e-6);
  }
}

TEST(GemmTest, RangesOfRowsHaveTheBitsOfTheWhole) {
  ThreadPool pool(3);
  AlignedBuffer<float> workspace(kGemmRowsWorkspaceFloats);
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      Memory memory(411, 70, 150, a, b);
      const std::vector<float> whole = memory.Run(pool);
      std::fill(memory.c.begin(), memory.c.end(), kNaN);
      for (const auto& [begin, end] :
           {std::pair(0, 1), {1, 8}, {8, 8}, {8, 300}, {300, 411}}) {
        GemmRows(memory.problem, begin, end, workspace.data());
      }
      EXPECT_TRUE(SameBits(whole, memory.Dense()));
    }
  }
}

TEST(GemmTest, PackedOperandsAndManyAtOnceHaveTheSameBits) {
  ThreadPool pool(3);
  Memory one(197, 130, 261, false, true), two(70, 33, 300, true, false),
      three(0, 5, 3, false, false), four(6, 65, 0, false, true);
  Memory* const all[] = {&one, &two, &three, &four};
  std::vector<std::vector<float>> alone;
  std::vector<AlignedBuffer<float>> packed;
  std::vector<GemmProblem> problems;
  for (Memory* memory : all) {
    alone.push_back(memory->Run(pool));
    std::fill(memory->c.begin(), memory->c.end(), kNaN);
    GemmProblem p = memory->problem;
    packed.emplace_back(GemmPackedFloats(p.depth, p.columns));
    for (int64_t i = 0; i < GemmBlocks(p.depth, p.columns); ++i) {
      GemmPackBlock(p.b, p.depth, p.columns, i, packed.back().data());
    }
    p.packed_b = packed.back().data();
    p.b = {};
    problems.push_back(p);
  }
  AlignedBuffer<float> workspace(GemmWorkspaceFloats(pool));
  GemmMany(problems.data(), 4, workspace.data(), pool);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(SameBits(alone[i], all[i]->Dense())) << i;
  }
}

TEST(GemmTest, AddsToWhatIsThere) {
  ThreadPool pool(2);
  for (const int64_t depth : {0, 40, 300}) {
    Memory memory(20, 70, depth, false, true);
    const std::vector<float> alone = memory.Run(pool);
    for (float& v : memory.c) v = v + 1.0f;  // NaN stays NaN
    memory.problem.add = true;
    AlignedBuffer<float> workspace(GemmWorkspaceFloats(pool));
    Gemm(memory.problem, workspace.data(), pool);
    const std::vector<float> got = memory.Dense();
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], 2.0 * alone[i] + 1.0, 1e-4);
    }
  }
}

TEST(GemmTest, OneBadNumberStaysInItsRowAndColumn) {
  SerialExecutor serial;
  Memory memory(9, 70, 20, false, false, /*gap=*/0);
  memory.a[static_cast<size_t>(1 + 4 * 20 + 3)] = kNaN;
  const std::vector<float> got = memory.Run(serial);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(std::isnan(got[i]), i / 70 == 4) << i;
  }
}

TEST(GemmTest, RefusesBadSizesBeforeAnyWork) {
  SerialExecutor serial;
  Memory memory(4, 5, 6, false, true);
  AlignedBuffer<float> workspace(kGemmRowsWorkspaceFloats);
  const auto refuse = [&](auto change) {
    GemmProblem bad = memory.problem;
    change(bad);
    Gemm(bad, workspace.data(), serial);
  };
  EXPECT_THROW(refuse([](GemmProblem& p) { p.rows = -1; }), ShapeError);
  EXPECT_THROW(refuse([](GemmProblem& p) { p.depth = -1; }), ShapeError);
  EXPECT_THROW(refuse([](GemmProblem& p) { p.a.stride = 5; }), ShapeError);
  EXPECT_THROW(refuse([](GemmProblem& p) { p.b.stride = 5; }), ShapeError);
  EXPECT_THROW(refuse([](GemmProblem& p) { p.c_stride = 4; }), ShapeError);
  EXPECT_THROW(refuse([](GemmProblem& p) { p.b.data = nullptr; }),
               ArgumentError);
  for (const float x : memory.c) EXPECT_TRUE(std::isnan(x));
}

}  // namespace
}  // namespace tarn
