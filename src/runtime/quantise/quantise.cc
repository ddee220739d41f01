#include "runtime/quantise/quantise.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"
#include "kernels/matmul/weight_format.h"
#include "runtime/model/supported.h"
#include "runtime/quantise/spread_tokens.h"
#include "runtime/weights/matrix_list.h"
#include "runtime/weights/weights.h"
#include "weights/quantised/group_encodings.h"

namespace tarn {
namespace {

// Tokens for each input of the widest matrix, the least tokens, since models of
// narrow matrices gain from more, and the most numbers in the rows of all
// tokens: 1 GiB.
constexpr int64_t kTokensPerInput = 8;
constexpr int64_t kLeastTokens = 16384;
constexpr int64_t kMostNumbers = int64_t{1} << 28;
// As many times as many tokens of a text are looked at, so that those that are
// taken are not of its first subject alone.
constexpr int64_t kTextTimes = 16;
// Of matrices that need 8 bits where the others have fewer.
constexpr GroupScheme kFineScheme = {8, 64, false};
constexpr const char* kStoredWord = "stored";

// What a rule does: an encoding, or null for as it is stored.
using Kept = std::optional<const Encoding*>;

Kept KeptType(const std::string& word) {
  if (word == kStoredWord) return nullptr;
  for (const Encoding* encoding : {&kF32Encoding, &kBF16Encoding}) {
    const WeightFormat& format =
        encoding == &kF32Encoding ? kF32Weights : kBF16Weights;
    if (word == format.name) return encoding;
  }
  for (const WeightFormat* format : GroupFormats()) {
    if (word == format->name) return &GroupEncoding(*format->scheme);
  }
  return std::nullopt;
}

struct Rule {
  std::string pattern;
  const Encoding* encoding;  // null: as it is stored
  bool used = false;
};

std::vector<Rule> RulesOf(const std::vector<KeepRule>& keep) {
  std::vector<Rule> rules;
  for (const KeepRule& rule : keep) {
    const Kept kept = KeptType(rule.type);
    if (!kept) {
      std::string words;
      for (const std::string& word : KeepTypes()) {
        words += (words.empty() ? "one of " : ", ") + word;
      }
      throw ArgumentError(StrCat("keep ", Quoted(rule.pattern)), words,
                          Quoted(rule.type));
    }
    rules.push_back({rule.pattern, *kept});
  }
  return rules;
}

// How each matrix is stored that does not stay as it is.
TensorEncodings PlanEncodings(const WeightSource& source,
                              const ModelConfig& config,
                              const std::vector<ListedMatrix>& matrices,
                              const QuantiseOptions& options) {
  const std::map<std::string, Precision> precise = WeightPrecisions(config);
  std::vector<Rule> rules = RulesOf(options.keep);
  TensorEncodings encodings;
  for (const ListedMatrix& matrix : matrices) {
    for (const std::string& name : matrix.tensors) {
      const WeightTensor& tensor = *source.Find(name);
      const auto found = precise.find(name);
      const Precision precision =
          found == precise.end() ? Precision::kGroups : found->second;
      std::optional<GroupScheme> scheme = options.scheme;
      if (precision == Precision::kFloat) scheme = std::nullopt;
      if (precision == Precision::kByte && options.scheme.bits < 8) {
        scheme = kFineScheme;
      }
      // What has as many bits already keeps its numbers.
      const GroupScheme* stored = tensor.encoding->scheme;
      if (scheme && stored != nullptr && stored->bits == scheme->bits) {
        scheme = std::nullopt;
      }
      const Encoding* encoding =
          scheme ? &GroupEncoding(*scheme) : tensor.encoding;
      for (Rule& rule : rules) {
        if (!MatchesPattern(rule.pattern, name)) continue;
        rule.used = true;
        encoding = rule.encoding != nullptr ? rule.encoding : tensor.encoding;
      }
      if (encoding != tensor.encoding && encoding->scheme != nullptr) {
        const auto fitting = FittingScheme(*encoding->scheme, tensor.shape);
        const bool same = stored != nullptr && fitting && *fitting == *stored;
        encoding =
            fitting && !same ? &GroupEncoding(*fitting) : tensor.encoding;
      }
      if (encoding != tensor.encoding) encodings[name] = encoding;
    }
  }
  for (const Rule& rule : rules) {
    if (rule.used) continue;
    throw ArgumentError("keep", "a pattern that some matrix matches",
                        Quoted(rule.pattern, 200));
  }
  return encodings;
}

std::string KeyOfOptions(const QuantiseOptions& options,
                         const std::vector<int32_t>& tokens) {
  const std::string_view bytes(reinterpret_cast<const char*>(tokens.data()),
                               tokens.size() * sizeof(int32_t));
  return StrCat(" quantize ", options.sequence, " ", tokens.size(), " ",
                HashText(HashBytes(bytes)));
}

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = pattern.npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) &&
        pattern[p] != '*') {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (star != pattern.npos) {  // the last star takes one more
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string> KeepTypes() {
  std::vector<std::string> words = {kStoredWord, kF32Weights.name,
                                    kBF16Weights.name};
  for (const WeightFormat* format : GroupFormats()) {
    words.emplace_back(format->name);
  }
  return words;
}

Quantised QuantiseModel(const std::string& from, const std::string& dir,
                        const QuantiseOptions& options) {
  GroupEncoding(options.scheme);  // throws for one that there is not
  Quantised quantised;
  ThreadPool pool(options.threads > 0 ? options.threads : DefaultThreads());
  ConvertOptions convert = options.convert;
  std::pair<uint64_t, uint64_t> last;  // what was reported
  if (options.convert.progress) {
    convert.progress = [&](uint64_t done, uint64_t total) {
      last = {done, total};
      return options.convert.progress(done, total);
    };
  }
  const auto tick = [&] {
    if (convert.progress && !convert.progress(last.first, last.second)) {
      throw Error(ErrorCode::kInterrupted, "interrupted");
    }
  };
  std::unique_ptr<Calibration> calibration;
  const auto rounded = [&](std::shared_ptr<const WeightSource> source,
                           const ModelConfig& config) {
    if (const auto error = CheckSupported(config)) {
      Throw(FormatError(error->where(), error->wanted(), error->given()));
    }
    const std::vector<ListedMatrix> matrices = ListMatrices(*source, config);
    const TensorEncodings encodings =
        PlanEncodings(*source, config, matrices, options);
    std::vector<std::string> names;
    for (const auto& [name, shape] : TensorShapes(*source, config)) {
      names.push_back(name);
    }
    MadeBlocks made;
    std::vector<int32_t> tokens;
    if (options.text) {
      int64_t widest = 0;
      for (const ListedMatrix& matrix : matrices) {
        widest = std::max(widest, matrix.inputs);
      }
      CalibrationText text;
      text.sequence = options.sequence;
      if (config.positions == Positions::kLearned) {
        text.sequence = std::min(text.sequence, config.max_positions);
      }
      const int64_t count =
          std::min(kMostNumbers / config.d_model,
                   std::max(kTokensPerInput * widest, kLeastTokens));
      tokens = SpreadTokens(options.text(config, kTextTimes * count), count,
                            text.sequence);
      text.tokens = tokens;
      quantised.calibration_tokens = tokens.size();
      TensorEncodings in_groups;
      for (const auto& [name, encoding] : encodings) {
        if (encoding->scheme != nullptr) in_groups[name] = encoding;
      }
      calibration = std::make_unique<Calibration>(
          source,
          std::make_shared<RoundedSource>(source, names, encodings, nullptr,
                                          pool),
          config, in_groups, std::move(text), pool, tick);
      made = [&](const WeightTensor& tensor) {
        return calibration->Blocks(tensor);
      };
    }
    auto result = std::make_shared<RoundedSource>(
        std::move(source), names, encodings, std::move(made), pool);
    for (const WeightTensor& tensor : result->tensors()) {
      if (tensor.encoding->scheme == nullptr) continue;
      ++quantised.rounded;
      quantised.rounded_numbers += static_cast<uint64_t>(tensor.elements());
      quantised.rounded_bytes += static_cast<uint64_t>(tensor.bytes());
    }
    return ChangedWeights{std::move(result), KeyOfOptions(options, tokens)};
  };
  quantised.converted = CopyModel(from, dir, convert, rounded);
  return quantised;
}

}  // namespace tarn
