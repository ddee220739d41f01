#include "data/pairs/pairs.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"
#include "data/pairs/csv.h"
#include "data/pairs/csv_pairs.h"
#include "data/text/records.h"

namespace tarn::train {
namespace {

// The bytes up to the next line end, which is taken as well.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

Pair Cut(const std::string& path, int64_t number, std::string_view line,
         bool label_first) {
  const auto refuse = [&](const std::string& wanted, const std::string& given) {
    throw FormatError(StrCat(path, ":", number), wanted, given);
  };
  if (line.size() > kMaxLineBytes) {
    refuse(StrCat("at most ", kMaxLineBytes, " bytes"), StrCat(line.size()));
  }
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos ||
      line.find('\t', tab + 1) != std::string_view::npos || tab == 0 ||
      tab + 1 == line.size()) {
    refuse(label_first
               ? "label TAB text, neither empty (or a file named .csv)"
               : "source TAB target, neither empty (or a file named .csv)",
           Quoted(line));
  }
  Pair pair{line.substr(0, tab), line.substr(tab + 1)};
  if (label_first) std::swap(pair.input, pair.output);
  if (label_first && pair.output.size() > kMaxLabelBytes) {
    refuse(StrCat("a label of at most ", kMaxLabelBytes, " bytes"),
           StrCat(pair.output.size()));
  }
  return pair;
}

// Reads the files of a run one after the other.
class PairReader {
 public:
  PairReader(const TextFiles& files, bool label_first,
             const PairColumns& columns, PairSplit& split)
      : files_(files),
        label_first_(label_first),
        columns_(columns),
        split_(split) {}

  std::vector<Pair> Read() {
    const bool named = !columns_.input.empty() || !columns_.output.empty();
    for (file_ = 0; file_ < files_.files(); ++file_) {
      const std::string_view text = files_.contents(file_);
      split_.fingerprint = Mix(split_.fingerprint ^ HashBytes(text));
      if (named || IsCsvName(files_.path(file_))) {
        ReadCsv(text);
      } else {
        ReadLines(text);
      }
    }
    return std::move(pairs_);
  }

 private:
  void Add(Pair pair, int64_t line) {
    if (static_cast<int64_t>(pairs_.size()) == kMaxPairs) {
      throw FormatError(files_.path(file_),
                        StrCat("at most ", kMaxPairs, " examples"), "more");
    }
    pair.file = file_;
    pair.line = line;
    pairs_.push_back(pair);
  }

  void ReadLines(std::string_view text) {
    for (int64_t number = 1; !text.empty(); ++number) {
      const std::string_view line = TakeLine(text);
      if (line.empty()) continue;
      Add(Cut(files_.path(file_), number, line, label_first_), number);
    }
  }

  void ReadCsv(std::string_view text) {
    CsvPairs records(files_.path(file_), text, label_first_, columns_);
    Pair pair;
    while (records.Next(split_.unescaped, pair)) Add(pair, pair.line);
  }

  const TextFiles& files_;
  const bool label_first_;
  const PairColumns& columns_;
  PairSplit& split_;
  std::vector<Pair> pairs_;
  int64_t file_ = 0;
};

// A pair is held out by its bytes alone: other lines do not move it.
uint64_t Rank(const Pair& pair) { return Mix(HashBytes(pair.input) ^ 0x5eed); }

enum class Side : uint8_t { kTraining, kHeldOut, kDuplicate, kOverlapping };

// Finds the side of each pair. Sorted by input and output, equal pairs are
// neighbours, so no table is needed that chosen inputs could make slow.
class Sorter {
 public:
  Sorter(const std::vector<Pair>& pairs, int64_t held_out_files)
      : pairs_(pairs), files_(held_out_files), order_(pairs.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      const int input = pairs[a].input.compare(pairs[b].input);
      if (input != 0) return input < 0;
      const int output = pairs[a].output.compare(pairs[b].output);
      return output != 0 ? output < 0 : a < b;
    });
    for (const Pair& pair : pairs) {
      least_ = std::min(least_, Rank(pair));
      any_ = any_ || Rank(pair) % kHoldOutOneIn == 0;
    }
  }

  std::vector<Side> Sides() const {
    std::vector<Side> sides(pairs_.size());
    for (size_t begin = 0, end; begin < order_.size(); begin = end) {
      end = begin + 1;
      while (end < order_.size() && Input(end) == Input(begin)) ++end;
      Assign(begin, end, sides);
    }
    return sides;
  }

 private:
  std::string_view Input(size_t i) const { return pairs_[order_[i]].input; }

  bool HeldOut(const Pair& pair) const {
    if (files_ > 0) return pair.file < files_;
    // Too few inputs for one in twenty: the one with the least hash.
    return any_ ? Rank(pair) % kHoldOutOneIn == 0 : Rank(pair) == least_;
  }

  // The pairs [begin, end) of one input. Of equal ones the first in the files
  // is kept, and files held out come first.
  void Assign(size_t begin, size_t end, std::vector<Side>& sides) const {
    bool held_out = false;
    for (size_t i = begin; i < end; ++i) {
      held_out = held_out || HeldOut(pairs_[order_[i]]);
    }
    for (size_t i = begin; i < end; ++i) {
      const Pair& pair = pairs_[order_[i]];
      Side side = held_out ? Side::kHeldOut : Side::kTraining;
      if (held_out && !HeldOut(pair)) {
        side = Side::kOverlapping;
      } else if (i > begin && pairs_[order_[i - 1]].output == pair.output) {
        side = Side::kDuplicate;
      }
      sides[order_[i]] = side;
    }
  }

  const std::vector<Pair>& pairs_;
  int64_t files_;
  std::vector<size_t> order_;
  uint64_t least_ = UINT64_MAX;
  bool any_ = false;
};

}  // namespace

std::string PlaceOf(const TextFiles& files, const Pair& pair) {
  return StrCat(files.path(pair.file), ":", pair.line);
}

PairSplit ReadPairs(const TextFiles& files, int64_t held_out_files,
                    bool label_first, const PairColumns& columns) {
  PairSplit split;
  split.fingerprint = Mix(static_cast<uint64_t>(held_out_files));
  const std::vector<Pair> pairs =
      PairReader(files, label_first, columns, split).Read();
  const std::vector<Side> sides = Sorter(pairs, held_out_files).Sides();
  for (size_t i = 0; i < pairs.size(); ++i) {
    split.duplicates += sides[i] == Side::kDuplicate;
    split.overlapping += sides[i] == Side::kOverlapping;
    if (sides[i] == Side::kTraining) split.training.push_back(pairs[i]);
    if (sides[i] == Side::kHeldOut) split.held_out.push_back(pairs[i]);
  }
  if (split.training.empty() || split.held_out.empty()) {
    throw FormatError("data",
                      "examples with different inputs, to train on and to "
                      "hold out",
                      StrCat(split.training.size(), " and ",
                             split.held_out.size(), " of ", pairs.size()));
  }
  return split;
}

}  // namespace tarn::train
