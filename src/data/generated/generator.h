// Tasks whose rows come from a formula and are generated where they are needed.
//
//   copy  w 0 w 0 0 ...: a random string, a separator, the same string again
//         (Katharopoulos et al. 2020, section 4.1). The string has n symbols, n
//         uniform in [T / 4, (T - 1) / 2 - 1]; labelled are the separator and
//         the second string, n + 1 targets.
//   mqar  multi-query associative recall (Arora et al. 2023, "Zoology"): P keys
//         with their values, k1 v1 k2 v2 ..., then each key again somewhere
//         in the rest, where its value is the label. Slots are the even offsets
//         i = 1, 2, ... of the rest, drawn with p(i) ~ i^(power - 1).
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::train {

enum class GeneratorKind { kNone, kCopy, kMqar };
const char* Name(GeneratorKind);

struct GeneratorOptions {
  GeneratorKind kind = GeneratorKind::kNone;
  /// copy: symbols besides the separator 0, ids 1 to symbols; 0: 10.
  /// mqar: the whole vocabulary V, keys 1 to V / 2 - 1, values V / 2 to V - 1;
  /// 0: 8192.
  int64_t symbols = 0;
  int64_t pairs = 4;     // mqar: P
  double power = 0.01;   // mqar: 1 spreads the queries evenly
  bool distract = true;  // mqar: free places hold random tokens, else 0
};

/// One row. inputs, targets: seq_len tokens; a target is the token to predict
/// at its place, kUnlabelled where there is none.
struct GeneratedRow {
  std::vector<int32_t> inputs, targets;
};
inline constexpr int32_t kUnlabelled = -100;  // torch's ignore_index

/// Immutable; thread-safe. Rows are pure functions of their arguments, made of
/// counter-based numbers: O(seq_len) time and memory a row (mqar: seq_len log
/// seq_len).
class Generator {
 public:
  /// Throws ArgumentError naming the flag: kind none, sizes that do not fit
  /// (copy: seq_len >= 5; mqar: seq_len even, 4 pairs <= seq_len < symbols).
  Generator(const GeneratorOptions& options, int64_t seq_len);

  /// Token ids run from 0 to vocab_size() - 1.
  int64_t vocab_size() const;
  /// Row `row` of update `step` (1 or more).
  GeneratedRow TrainingRow(uint64_t seed, int64_t step, int64_t row) const;
  /// Fresh rows of another stream of the seed.
  GeneratedRow HeldOutRow(uint64_t seed, int64_t index) const;

  /// Upper bound of the expected share of held-out rows that occur among
  /// `rows` training rows, 0 to 1. (mqar: of their contexts.)
  double RepeatedShare(double rows) const;

 private:
  GeneratedRow Row(uint64_t seed, uint64_t stream, int64_t row) const;

  GeneratorOptions options_;
  int64_t seq_len_;
};

}  // namespace tarn::train
