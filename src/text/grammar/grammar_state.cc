#include <algorithm>
#include <cstring>
#include <utility>

#include "text/grammar/automaton.h"
#include "text/grammar/grammar.h"
#include "text/grammar/stacks.h"

namespace tarn {
namespace {

using grammar::StackSet;
using grammar::Stepper;

constexpr char kStateMagic[] = "tarn grammar 1\n";
constexpr size_t kMagicBytes = sizeof(kStateMagic) - 1;

Error RefusedByte(std::string_view bytes, size_t at, bool limited) {
  if (limited) {
    return FormatError(
        "grammar",
        StrCat("text within ", grammar::kMaxDepth, " levels of rules, ",
               grammar::kMaxItems, " positions and ", grammar::kMaxFrames,
               " open rules"),
        StrCat("more at byte ", at));
  }
  const auto byte = static_cast<uint8_t>(bytes[at]);
  constexpr char kDigits[] = "0123456789abcdef";
  return FormatError(
      "grammar", "text that the grammar allows",
      StrCat("byte ", at, ", 0x", kDigits[byte >> 4], kDigits[byte & 15]));
}

// Little-endian words of 32 bits.
void PutWord(std::string& out, uint64_t word) {
  for (int i = 0; i < 4; ++i) {
    out.push_back(static_cast<char>((word >> (8 * i)) & 255));
  }
}

// Reads what PutWord wrote; past the end all words are zero, and `short_`
// tells.
class WordReader {
 public:
  explicit WordReader(std::string_view bytes) : bytes_(bytes) {}
  uint32_t Next() {
    if (bytes_.size() < 4) {
      short_ = true;
      return 0;
    }
    uint32_t word = 0;
    for (int i = 3; i >= 0; --i) {
      word = (word << 8) | static_cast<uint8_t>(bytes_[i]);
    }
    bytes_.remove_prefix(4);
    return word;
  }
  // A word below `end`; otherwise -1.
  int64_t Below(size_t end) {
    const uint32_t word = Next();
    return word < end ? static_cast<int64_t>(word) : -1;
  }
  bool whole() const { return !short_ && bytes_.empty(); }
  size_t words_left() const { return bytes_.size() / 4; }

 private:
  std::string_view bytes_;
  bool short_ = false;
};

Error RefusedState(const char* given) {
  return FormatError("saved grammar state", "a state of this grammar", given);
}

}  // namespace

GrammarState::GrammarState(Grammar grammar)
    : grammar_(std::move(grammar)),
      stacks_(std::make_shared<const StackSet>(
          StackSet::Start(grammar_.automaton()))) {}

std::optional<Error> GrammarState::Advance(std::string_view bytes) {
  if (bytes.empty()) return std::nullopt;
  Stepper stepper(grammar_.automaton());
  stepper.Load(*stacks_);
  Stepper::Range tops = stepper.Add(stacks_->tops);
  for (size_t i = 0; i < bytes.size(); ++i) {
    tops = stepper.Step(tops, static_cast<uint8_t>(bytes[i]));
    if (tops.empty()) return RefusedByte(bytes, i, stepper.limited());
    const Stepper::Mark used = stepper.Save();
    if (used.frames > grammar::kMaxFrames || used.items > (1 << 16)) {
      const StackSet set = stepper.Store(tops);  // drops what is not needed
      stepper.Load(set);
      tops = stepper.Add(set.tops);
    }
  }
  stacks_ = std::make_shared<const StackSet>(stepper.Store(tops));
  return std::nullopt;
}

bool GrammarState::complete() const {
  Stepper stepper(grammar_.automaton());
  stepper.Load(*stacks_);
  return stepper.Complete(stepper.Add(stacks_->tops));
}

bool GrammarState::operator==(const GrammarState& other) const {
  return grammar_.fingerprint() == other.grammar_.fingerprint() &&
         *stacks_ == *other.stacks_;
}

std::string GrammarState::Save() const {
  std::string out(kStateMagic, kMagicBytes);
  PutWord(out, grammar_.fingerprint());
  PutWord(out, grammar_.fingerprint() >> 32);
  PutWord(out, stacks_->nodes.size());
  for (size_t f = 1; f < stacks_->nodes.size(); ++f) {
    PutWord(out, static_cast<uint64_t>(stacks_->nodes[f]));
    PutWord(out, stacks_->below[f].size());
    for (const int32_t below : stacks_->below[f]) {
      PutWord(out, static_cast<uint64_t>(below));
    }
  }
  PutWord(out, stacks_->tops.size());
  for (const StackSet::Top& top : stacks_->tops) {
    PutWord(out, static_cast<uint64_t>(top.node));
    PutWord(out, static_cast<uint64_t>(top.frame));
  }
  return out;
}

Result<GrammarState> GrammarState::Load(Grammar grammar,
                                        std::string_view saved) {
  if (saved.substr(0, kMagicBytes) != std::string_view(kStateMagic)) {
    return RefusedState("other bytes");
  }
  WordReader reader(saved.substr(kMagicBytes));
  const uint64_t low = reader.Next();
  if ((low | (uint64_t{reader.Next()} << 32)) != grammar.fingerprint()) {
    return RefusedState("another grammar's");
  }
  const auto nodes = static_cast<size_t>(grammar.size());
  StackSet set{{-1}, {{}}, {}};
  const int64_t frames = reader.Below(grammar::kMaxFrames + 1);
  bool valid = frames >= 1;
  for (int64_t f = 1; valid && f < frames; ++f) {
    const int64_t node = reader.Below(nodes);
    const int64_t count = reader.Below(grammar::kMaxItems + 1);
    // What is not in the text is not allocated either.
    valid = node >= 0 && count >= 1 &&
            static_cast<size_t>(count) <= reader.words_left();
    set.nodes.push_back(static_cast<int32_t>(node));
    set.below.emplace_back();
    for (int64_t i = 0; valid && i < count; ++i) {
      const int64_t below = reader.Below(static_cast<size_t>(f));
      valid = below >= 0;
      set.below.back().push_back(static_cast<int32_t>(below));
    }
  }
  const int64_t tops = valid ? reader.Below(grammar::kMaxItems + 1) : 0;
  valid &= tops >= 1;
  for (int64_t i = 0; valid && i < tops; ++i) {
    const int64_t node = reader.Below(nodes);
    const int64_t frame = reader.Below(static_cast<size_t>(frames));
    valid = node >= 0 && frame >= 0;
    set.tops.push_back(
        {static_cast<int32_t>(node), static_cast<int32_t>(frame)});
  }
  if (!valid || !reader.whole()) return RefusedState("damaged bytes");
  Stepper stepper(grammar.automaton());
  stepper.Load(set);
  if (stepper.peak_depth() > grammar::kMaxDepth ||
      stepper.Store(stepper.Add(set.tops)) != set) {
    return RefusedState("damaged bytes");
  }
  GrammarState state(std::move(grammar));
  state.stacks_ = std::make_shared<const StackSet>(std::move(set));
  return state;
}

}  // namespace tarn
