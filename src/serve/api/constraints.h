// Grammars of requests, compiled once for all that have the same.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/session/constraint.h"

namespace tarn::serve {

/// Keeps the last ones, and the tables of the vocabulary for all. Thread-safe.
class ConstraintCache {
 public:
  /// Refers to the tokenizer.
  explicit ConstraintCache(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer) {}

  /// Throws FormatError that names `where`, and the place in the source.
  std::shared_ptr<const Constraint> Get(GrammarKind kind,
                                        const std::string& source,
                                        std::span<const int32_t> stop_tokens,
                                        const std::string& where);

 private:
  static constexpr size_t kMost = 32;
  struct Entry {
    std::vector<int32_t> stop_tokens;
    std::shared_ptr<const Constraint> constraint;
  };

  const Tokenizer& tokenizer_;
  std::mutex turn_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace tarn::serve
