#include "runtime/stack/pooled_rows.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"

namespace tarn {

const char* Name(Pooling pooling) {
  return pooling == Pooling::kMean ? "mean" : "last";
}

Pooling ParsePooling(const std::string& where, std::string_view word) {
  for (const Pooling one : {Pooling::kMean, Pooling::kLast}) {
    if (word == Name(one)) return one;
  }
  throw ArgumentError(where, "mean or last", Quoted(word));
}

void PooledRows::Add(const float* row) {
  if (pooling_ == Pooling::kLast) Clear();
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += double{row[i]};
  ++count_;
}

void PooledRows::Clear() {
  std::fill(sums_.begin(), sums_.end(), 0.0);
  count_ = 0;
}

// The mean has the direction of the sum, so nothing is divided by the count.
void PooledRows::Write(float* vector) const {
  double squares = 0;
  for (const double sum : sums_) squares += sum * sum;
  if (!std::isfinite(squares)) {
    throw NumericError("vector of a text", "finite numbers",
                       "others (`tarn verify` checks the weights)");
  }
  const double length = std::sqrt(squares);
  for (size_t i = 0; i < sums_.size(); ++i) {
    vector[i] = length > 0 ? static_cast<float>(sums_[i] / length) : 0.0f;
  }
}

}  // namespace tarn
