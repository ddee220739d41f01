#include "train/objectives/example_rows.h"

#include <algorithm>
#include <numeric>

#include "train/objectives/evaluate.h"

namespace tarn::train {
namespace {

// [rows, width] int64, every place `value`.
torch::Tensor Filled(int64_t rows, int64_t width, int64_t value) {
  return torch::full({rows, width}, value, torch::kInt64);
}

int64_t* Row(const torch::Tensor& matrix, int64_t row) {
  return matrix.data_ptr<int64_t>() + row * matrix.size(1);
}

}  // namespace

ExampleRows MakeExampleRows(const Examples& examples,
                            const std::vector<int64_t>& which,
                            int32_t newline) {
  const auto count = static_cast<int64_t>(which.size());
  int64_t longest_input = 0, longest_target = 0;
  for (const int64_t i : which) {
    longest_input = std::max(longest_input, std::ssize(examples.input(i)));
    longest_target = std::max(longest_target, std::ssize(examples.target(i)));
  }
  const bool labelled = newline < 0;
  ExampleRows rows;
  rows.batch.tokens = Filled(count, longest_input, 0);
  rows.batch.lengths = torch::empty({count}, torch::kInt64);
  if (labelled) {
    rows.targets = torch::empty({count}, torch::kInt64);
  } else {
    rows.batch.target_in = Filled(count, longest_target + 1, newline);
    rows.targets = Filled(count, longest_target + 1, kIgnored);
  }
  for (int64_t r = 0; r < count; ++r) {
    const auto input = examples.input(which[r]);
    const auto target = examples.target(which[r]);
    std::copy(input.begin(), input.end(), Row(rows.batch.tokens, r));
    rows.batch.lengths.data_ptr<int64_t>()[r] = std::ssize(input);
    rows.tokens += std::ssize(input) + std::ssize(target);
    if (labelled) {
      rows.targets.data_ptr<int64_t>()[r] = examples.label(which[r]);
      ++rows.predicted;
      continue;
    }
    std::copy(target.begin(), target.end(), Row(rows.batch.target_in, r) + 1);
    *std::copy(target.begin(), target.end(), Row(rows.targets, r)) = newline;
    rows.predicted += std::ssize(target) + 1;
  }
  return rows;
}

std::vector<std::vector<int64_t>> ByLength(const Examples& examples,
                                           int64_t rows) {
  std::vector<int64_t> order(static_cast<size_t>(examples.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return examples.input(a).size() < examples.input(b).size();
  });
  std::vector<std::vector<int64_t>> batches;
  for (int64_t first = 0; first < std::ssize(order); first += rows) {
    const int64_t end = std::min(first + rows, std::ssize(order));
    batches.emplace_back(order.begin() + first, order.begin() + end);
  }
  return batches;
}

}  // namespace tarn::train
