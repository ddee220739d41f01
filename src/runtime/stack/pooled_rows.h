// The vector of a text: the rows that its last layer gives, made into one while
// its blocks run, so that a text of any length needs one row of memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

/// Which rows make the vector of a text.
enum class Pooling {
  kMean,  // all of them, their mean
  kLast,  // that of the last token
};
const char* Name(Pooling pooling);
/// Throws ArgumentError that names `where` for any word but mean and last.
Pooling ParsePooling(const std::string& where, std::string_view word);

/// A value. Rows are added in the order of their tokens, in double: the same
/// bits however they are split.
class PooledRows {
 public:
  PooledRows(Pooling pooling, int64_t d_model)
      : pooling_(pooling), sums_(static_cast<size_t>(d_model)) {}

  Pooling pooling() const { return pooling_; }
  int64_t count() const { return count_; }  // rows that were added
  /// The sum of the rows, or the last one. [d_model]
  std::span<const double> sums() const { return sums_; }

  void Add(const float* row);
  /// Back to no rows.
  void Clear();
  /// The pooled row with length 1 to vector [d_model]; zeros stay zeros.
  /// Throws NumericError for NaN and infinity.
  void Write(float* vector) const;

 private:
  Pooling pooling_;
  int64_t count_ = 0;
  std::vector<double> sums_;  // [d_model]
};

}  // namespace tarn
