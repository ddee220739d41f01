#include "runtime/quantise/compensate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/groups/round_group.h"
#include "kernels/aligned_buffer.h"
#include "kernels/gemm/gemm.h"

namespace tarn {
namespace {

constexpr int64_t kHeldRows = 512;    // inputs whose products are float32 sums
constexpr int64_t kColumns = 128;     // that are rounded before others change
constexpr int64_t kRowsTogether = 8;  // rows of weights that share factors

double Dot(const double* a, const double* b, int64_t count) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int64_t j = 0; j < 4; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

// f(begin, end) for parts of [0, count), in parallel where they are worth it.
template <typename F>
void ForRanges(int64_t count, int64_t work_each, Executor& executor,
               const F& f) {
  constexpr int64_t kLeastWork = 1 << 16;
  if (count * work_each < kLeastWork) {
    f(0, count);
    return;
  }
  const int64_t parts = std::min<int64_t>(count, 4 * executor.width());
  executor.ParallelFor(parts, [&](int64_t part, int) {
    f(part * count / parts, (part + 1) * count / parts);
  });
}

// The upper triangle of h [n, n] becomes that of R, h = R R^T, from the last
// column to the first.
void FactorFromBehind(std::vector<double>& h, int64_t n, Executor& executor) {
  for (int64_t j = n - 1; j >= 0; --j) {
    double* own = h.data() + j * n;
    const int64_t after = n - 1 - j;
    const double square = own[j] - Dot(own + j + 1, own + j + 1, after);
    if (!(square > 0) || !std::isfinite(square)) {
      throw NumericError("calibration: second moments of inputs",
                         "finite ones of a positive definite matrix",
                         StrCat(square, " in column ", j));
    }
    own[j] = std::sqrt(square);
    ForRanges(j, after + 1, executor, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        double* row = h.data() + i * n;
        row[j] = (row[j] - Dot(row + j + 1, own + j + 1, after)) / own[j];
      }
    });
  }
}

// The upper triangle R becomes that of its inverse. Columns of the inverse are
// made as rows in the lower triangle, where R is not.
void Invert(std::vector<double>& h, int64_t n, Executor& executor) {
  std::vector<double> diagonal(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    diagonal[static_cast<size_t>(j)] = 1 / h[static_cast<size_t>(j * n + j)];
  }
  executor.ParallelFor(n, [&](int64_t task, int) {
    const int64_t j = n - 1 - task;  // long ones first
    double* column = h.data() + j * n;
    const double last = diagonal[static_cast<size_t>(j)];
    for (int64_t i = j - 1; i >= 0; --i) {
      const double* row = h.data() + i * n;
      const double sum =
          Dot(row + i + 1, column + i + 1, j - 1 - i) + row[j] * last;
      column[i] = -sum * diagonal[static_cast<size_t>(i)];
    }
  });
  for (int64_t j = 0; j < n; ++j) {
    h[static_cast<size_t>(j * n + j)] = diagonal[static_cast<size_t>(j)];
    for (int64_t i = 0; i < j; ++i) {
      h[static_cast<size_t>(i * n + j)] = h[static_cast<size_t>(j * n + i)];
    }
  }
}

}  // namespace

InputMoments::InputMoments(int64_t inputs)
    : inputs_(inputs),
      rows_(static_cast<size_t>(kHeldRows * inputs)),
      sums_(static_cast<size_t>(inputs * inputs)) {}

void InputMoments::Add(const float* rows, int64_t stride, int64_t count,
                       Executor& executor) {
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(rows + i * stride, inputs_, rows_.data() + held_ * inputs_);
    if (++held_ == kHeldRows) Finish(executor);
  }
  count_ += count;
}

void InputMoments::Finish(Executor& executor) {
  if (held_ == 0) return;
  // X^T X, a part of its rows at a time.
  const int64_t part = std::clamp<int64_t>((1 << 22) / inputs_, 64, 4096);
  AlignedBuffer<float> workspace(GemmWorkspaceFloats(executor));
  std::vector<float> products;
  for (int64_t begin = 0; begin < inputs_; begin += part) {
    const int64_t rows = std::min(part, inputs_ - begin);
    products.resize(static_cast<size_t>(rows * inputs_));
    Gemm({.rows = rows,
          .columns = inputs_,
          .depth = held_,
          .a = {rows_.data() + begin, inputs_, true},
          .b = {rows_.data(), inputs_, false},
          .c = products.data(),
          .c_stride = inputs_},
         workspace.data(), executor);
    double* sums = sums_.data() + begin * inputs_;
    for (size_t i = 0; i < products.size(); ++i) {
      sums[i] += static_cast<double>(products[i]);
    }
  }
  held_ = 0;
}

Compensation::Compensation(const InputMoments& moments, double lambda,
                           Executor& executor)
    : inputs_(moments.inputs()),
      order_(static_cast<size_t>(inputs_)),
      factors_(static_cast<size_t>(inputs_ * inputs_)) {
  const int64_t n = inputs_;
  const std::vector<double>& sums = moments.sums();
  const double tokens =
      static_cast<double>(std::max<int64_t>(moments.count(), 1));
  std::vector<double> diagonal;
  double mean = 0;
  for (int64_t j = 0; j < n; ++j) {
    diagonal.push_back(sums[static_cast<size_t>(j * n + j)] / tokens);
    mean += diagonal.back() / static_cast<double>(n);
  }
  if (!std::isfinite(mean)) {
    throw NumericError("calibration: inputs of a matrix", "finite numbers",
                       "NaN or infinity");
  }
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
    return diagonal[static_cast<size_t>(a)] > diagonal[static_cast<size_t>(b)];
  });
  for (int64_t i = 0; i < n; ++i) {
    const double* from = sums.data() + order_[static_cast<size_t>(i)] * n;
    double* to = factors_.data() + i * n;
    for (int64_t j = 0; j < n; ++j) {
      to[j] = from[order_[static_cast<size_t>(j)]] / tokens;
    }
    to[i] += lambda * mean;
    // Its row and column are zeros: it takes and gives no error.
    if (diagonal[static_cast<size_t>(order_[static_cast<size_t>(i)])] == 0) {
      to[i] = 1;
    }
  }
  FactorFromBehind(factors_, n, executor);
  Invert(factors_, n, executor);
}

void Compensation::Round(const float* weights, int64_t rows,
                         const GroupScheme& scheme, uint8_t* blocks) const {
  const int64_t n = inputs_, groups = scheme.Blocks(n);
  const int64_t row_bytes = scheme.RowBytes(n);
  std::vector<double> left(static_cast<size_t>(kRowsTogether * n));
  std::vector<double> errors(static_cast<size_t>(kRowsTogether * kColumns));
  for (int64_t first = 0; first < rows; first += kRowsTogether) {
    const int64_t count = std::min(kRowsTogether, rows - first);
    for (int64_t r = 0; r < count; ++r) {
      const float* w = weights + (first + r) * n;
      uint8_t* own = blocks + (first + r) * row_bytes;
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t begin = g * scheme.group;
        StartGroup(
            scheme,
            FitGroup(w + begin, std::min(scheme.group, n - begin), scheme),
            own + g * scheme.BlockBytes());
      }
      for (int64_t i = 0; i < n; ++i) {
        left[static_cast<size_t>(r * n + i)] =
            static_cast<double>(w[order_[static_cast<size_t>(i)]]);
      }
    }
    for (int64_t begin = 0; begin < n; begin += kColumns) {
      const int64_t end = std::min(begin + kColumns, n);
      for (int64_t j = begin; j < end; ++j) {
        const double* factors = factors_.data() + j * n;
        const int64_t column = order_[static_cast<size_t>(j)];
        for (int64_t r = 0; r < count; ++r) {
          double* w = left.data() + r * n;
          uint8_t* block = blocks + (first + r) * row_bytes +
                           column / scheme.group * scheme.BlockBytes();
          const float scale = GroupScale(block);
          const float minimum = GroupMinimum(scheme, block);
          const int code =
              NearestCode(scheme, scale, minimum, static_cast<float>(w[j]));
          SetGroupCode(scheme, column % scheme.group, code, block);
          const double rounded =
              static_cast<double>(GroupValue(scheme, scale, minimum, code));
          const double error = (w[j] - rounded) / factors[j];
          errors[static_cast<size_t>(r * kColumns + j - begin)] = error;
          for (int64_t l = j + 1; l < end; ++l) w[l] -= error * factors[l];
        }
      }
      for (int64_t j = begin; j < end; ++j) {
        const double* factors = factors_.data() + j * n;
        for (int64_t r = 0; r < count; ++r) {
          double* w = left.data() + r * n;
          const double error =
              errors[static_cast<size_t>(r * kColumns + j - begin)];
          for (int64_t l = end; l < n; ++l) w[l] -= error * factors[l];
        }
      }
    }
  }
}

}  // namespace tarn
