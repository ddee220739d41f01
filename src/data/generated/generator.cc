#include "data/generated/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "core/error.h"
#include "core/rng.h"

namespace tarn::train {
namespace {

constexpr int64_t kMaxSymbols = int64_t{1} << 20;
// Streams of the seed: training rows use the step itself, as windows of text
// do; see trainer.cc for the others.
constexpr uint64_t kHeldOutStream = ~uint64_t{2};
// A row of 2^20 tokens draws fewer numbers than this.
constexpr uint64_t kCountersPerGeneratedRow = uint64_t{1} << 22;

constexpr int64_t kCopySymbols = 10;
constexpr int64_t kMqarSymbols = 8192;

struct Range {
  int64_t least, most;
};

// Lengths of a copied string: at 128 tokens those of the paper's code, 32..62.
Range CopyLengths(int64_t seq_len) {
  return {seq_len / 4, (seq_len - 1) / 2 - 1};
}

// The tokens of a row; a labelled place has the token after it as target.
GeneratedRow CopyRow(Rng& rng, int64_t symbols, int64_t seq_len) {
  const Range lengths = CopyLengths(seq_len);
  const auto n = static_cast<size_t>(lengths.least) +
                 rng.Below(lengths.most - lengths.least + 1);
  GeneratedRow row;
  row.inputs.assign(seq_len, 0);
  row.targets.assign(seq_len, kUnlabelled);
  for (size_t i = 0; i < n; ++i) {
    const auto symbol = static_cast<int32_t>(1 + rng.Below(symbols));
    row.inputs[i] = symbol;
    row.inputs[n + 1 + i] = symbol;
    row.targets[n + i] = symbol;
  }
  row.targets[n - 1] = 0;
  return row;
}

// `count` distinct numbers of [first, first + size), in random order. At most
// half of them are requested, so that two draws a number suffice on average.
std::vector<int32_t> Distinct(Rng& rng, int64_t first, int64_t size,
                              int64_t count) {
  std::vector<int32_t> drawn;
  std::unordered_set<uint64_t> seen;
  while (static_cast<int64_t>(drawn.size()) < count) {
    const uint64_t offset = rng.Below(size);
    if (!seen.insert(offset).second) continue;
    drawn.push_back(static_cast<int32_t>(first + static_cast<int64_t>(offset)));
  }
  return drawn;
}

// `count` of the slots 0 .. slots - 1, one after the other without replacement,
// slot i with weight (i + 1)^(power - 1). Efraimidis and Spirakis 2006: the
// largest of log(u_i) / weight_i, in their order, are such draws.
std::vector<int64_t> DrawSlots(Rng& rng, int64_t slots, int64_t count,
                               double power) {
  std::vector<double> score(slots);
  for (int64_t i = 0; i < slots; ++i) {
    const double weight = std::pow(static_cast<double>(i + 1), power - 1);
    score[i] = std::log(1 - rng.Uniform()) / weight;
  }
  std::vector<int64_t> order(slots);
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](int64_t a, int64_t b) {
                      return score[a] != score[b] ? score[a] > score[b] : a < b;
                    });
  order.resize(count);
  return order;
}

GeneratedRow MqarRow(Rng& rng, const GeneratorOptions& options,
                     int64_t seq_len) {
  const int64_t half = options.symbols / 2;
  const int64_t context = 2 * options.pairs;
  const auto keys = Distinct(rng, 1, half - 1, options.pairs);
  const auto values =
      Distinct(rng, half, options.symbols - half, options.pairs);
  const auto slots =
      DrawSlots(rng, (seq_len - context) / 2, options.pairs, options.power);
  GeneratedRow row;
  row.inputs.assign(seq_len, 0);
  row.targets.assign(seq_len, kUnlabelled);
  if (options.distract) {
    for (int64_t t = context; t < seq_len; ++t) {
      row.inputs[t] = static_cast<int32_t>(rng.Below(options.symbols));
    }
  }
  for (int64_t p = 0; p < options.pairs; ++p) {
    row.inputs[2 * p] = keys[p];
    row.inputs[2 * p + 1] = values[p];
    const int64_t at = context + 2 * slots[p];
    row.inputs[at] = keys[p];
    row.targets[at] = values[p];
  }
  return row;
}

void CheckCopy(const GeneratorOptions& options, int64_t seq_len) {
  if (options.symbols < 1 || options.symbols > kMaxSymbols) {
    throw ArgumentError("--symbols", StrCat("1 to ", kMaxSymbols),
                        StrCat(options.symbols));
  }
  const Range lengths = CopyLengths(seq_len);
  if (lengths.least < 1 || lengths.most < lengths.least) {
    throw ArgumentError("--seq-len", "5 or more to copy a string",
                        StrCat(seq_len));
  }
}

void CheckMqar(const GeneratorOptions& options, int64_t seq_len) {
  if (seq_len % 2 != 0) {
    throw ArgumentError("--seq-len", "an even number for mqar",
                        StrCat(seq_len));
  }
  if (options.symbols <= seq_len || options.symbols > kMaxSymbols) {
    throw ArgumentError("--symbols",
                        StrCat("more than --seq-len ", seq_len, ", at most ",
                               kMaxSymbols, " for mqar"),
                        StrCat(options.symbols));
  }
  if (options.pairs < 1 || options.pairs > seq_len / 4) {
    throw ArgumentError(
        "--pairs",
        StrCat("1 to ", seq_len / 4, ", a quarter of --seq-len", " ", seq_len),
        StrCat(options.pairs));
  }
  if (!(options.power > 0) || !(options.power <= 1)) {
    throw ArgumentError("--mqar-power", "a number above 0, at most 1",
                        StrCat(options.power));
  }
}

}  // namespace

const char* Name(GeneratorKind kind) {
  constexpr const char* kWords[] = {"none", "copy", "mqar"};
  return kWords[static_cast<int>(kind)];
}

Generator::Generator(const GeneratorOptions& options, int64_t seq_len)
    : options_(options), seq_len_(seq_len) {
  const bool copy = options_.kind == GeneratorKind::kCopy;
  if (!copy && options_.kind != GeneratorKind::kMqar) {
    throw ArgumentError("--generator", "copy or mqar", Name(options_.kind));
  }
  if (options_.symbols == 0) {
    options_.symbols = copy ? kCopySymbols : kMqarSymbols;
  }
  copy ? CheckCopy(options_, seq_len) : CheckMqar(options_, seq_len);
}

int64_t Generator::vocab_size() const {
  return options_.symbols + (options_.kind == GeneratorKind::kCopy ? 1 : 0);
}

GeneratedRow Generator::Row(uint64_t seed, uint64_t stream, int64_t row) const {
  Rng rng(seed, stream, static_cast<uint64_t>(row) * kCountersPerGeneratedRow);
  return options_.kind == GeneratorKind::kCopy
             ? CopyRow(rng, options_.symbols, seq_len_)
             : MqarRow(rng, options_, seq_len_);
}

GeneratedRow Generator::TrainingRow(uint64_t seed, int64_t step,
                                    int64_t row) const {
  return Row(seed, static_cast<uint64_t>(step), row);
}

GeneratedRow Generator::HeldOutRow(uint64_t seed, int64_t index) const {
  return Row(seed, kHeldOutStream, index);
}

// A row is drawn uniformly from `distinct` ones (of its length), so each of the
// training rows equals it with probability 1 / distinct.
double Generator::RepeatedShare(double rows) const {
  if (options_.kind == GeneratorKind::kMqar) {
    // Ordered keys and ordered values, each drawn without replacement.
    const int64_t half = options_.symbols / 2;
    double log_distinct = 0;
    for (int64_t p = 0; p < options_.pairs; ++p) {
      log_distinct +=
          std::log(static_cast<double>(half - 1 - p)) +
          std::log(static_cast<double>(options_.symbols - half - p));
    }
    return std::min(1.0, rows * std::exp(-log_distinct));
  }
  const Range lengths = CopyLengths(seq_len_);
  const auto count = static_cast<double>(lengths.most - lengths.least + 1);
  double share = 0;
  for (int64_t n = lengths.least; n <= lengths.most; ++n) {
    const double log_distinct = static_cast<double>(n) *
                                std::log(static_cast<double>(options_.symbols));
    share += std::min(1.0, rows / count * std::exp(-log_distinct)) / count;
  }
  return share;
}

}  // namespace tarn::train
