// `tarn quantize`: a model directory whose matrices are rounded to groups of
// numbers with a shared scale.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/groups/group_scheme.h"
#include "runtime/model/convert.h"
#include "runtime/quantise/calibration.h"

namespace tarn {

/// Matrices whose names match a pattern ('*' any characters, '?' one) and how
/// they are stored: as "stored", "f32", "bf16", or in the groups of a weight
/// format ("int8", "int4m-64").
struct KeepRule {
  std::string pattern, type;
};

struct QuantiseOptions {
  /// stored: kAsTheyAre. What is not rounded stays as it is.
  ConvertOptions convert;
  GroupScheme scheme;
  /// The last rule that matches a matrix counts.
  std::vector<KeepRule> keep;
  int threads = 0;  // 0: DefaultThreads()
  /// Tokens of a text for calibration, at most so many, 16 times as many as are
  /// taken from all over it (SpreadTokens): 8 for each input of the widest
  /// matrix and at least 16,384, or what has rows of 1 GiB; null: rounding to
  /// nearest.
  std::function<std::vector<int32_t>(const ModelConfig& config, int64_t most)>
      text = nullptr;
  int64_t sequence = 512;  // CalibrationText
};

struct Quantised {
  Converted converted;
  uint64_t rounded = 0;          // tensors in groups
  uint64_t rounded_numbers = 0;  // of these
  uint64_t rounded_bytes = 0;    // as stored
  uint64_t calibration_tokens = 0;
};

/// Writes `dir` as ImportModel does, from any model that this runtime runs,
/// tarn's own or published, with its matrices rounded. Those that need more
/// (WeightPrecisions of model_config.h) are rounded to 8 bits or stay as they
/// are; what is stored in groups of as many bits keeps them; groups are smaller
/// where that takes fewer bytes, and tensors of more
/// than two axes that have none stay (FittingScheme of group_encodings.h). With
/// a text, the layers' matrices are
/// rounded with compensation of errors (calibration.h), the embedding and the
/// head to nearest. Throws as ImportModel, FormatError for weights that cannot
/// be rounded, ArgumentError for rules that match no matrix or have no such
/// type and for texts that calibration does not take. A conversion that was
/// interrupted continues; one with a text computes again what it had.
Quantised QuantiseModel(const std::string& from, const std::string& dir,
                        const QuantiseOptions& options);

/// Whether a text matches a pattern as KeepRule has it. O(text * pattern).
bool MatchesPattern(std::string_view pattern, std::string_view text);

/// The words of KeepRule::type.
std::vector<std::string> KeepTypes();

}  // namespace tarn
