#include "text/pipeline/pre_tokenizer.h"

#include <algorithm>

#include "text/unicode/unicode.h"

namespace tarn {
namespace {

struct Visit {
  const std::vector<PreTokenizerStep>& steps;
  const PieceVisitor& visit;

  bool Next(size_t step, std::string_view text, bool first) const;
  bool Scan(size_t step, std::string_view text, bool first) const;
  bool WithoutSpaces(size_t step, std::string_view text, bool first) const;
  bool AtText(size_t step, std::string_view text, bool first) const;
  bool Metaspace(size_t step, std::string_view text, bool first) const;
};

bool Visit::Next(size_t step, std::string_view text, bool first) const {
  if (text.empty()) return true;
  if (step == steps.size()) return visit(text);
  using enum PreTokenizerStep::Kind;
  switch (steps[step].kind) {
    case kScan:
      return Scan(step, text, first);
    case kWithoutSpaces:
      return WithoutSpaces(step, text, first);
    case kMetaspace:
      return Metaspace(step, text, first);
    default:
      return AtText(step, text, first);
  }
}

bool Visit::Scan(size_t step, std::string_view text, bool first) const {
  while (!text.empty()) {
    const size_t bytes = steps[step].first_piece_bytes(text);
    if (!Next(step + 1, text.substr(0, bytes), first)) return false;
    text.remove_prefix(bytes);
    first = false;
  }
  return true;
}

bool Visit::WithoutSpaces(size_t step, std::string_view text,
                          bool first) const {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character next = ReadCharacter(text.substr(at));
    if (next.kind == CharacterClass::kSpace) {
      if (!Next(step + 1, text.substr(begin, at - begin),
                first && begin == 0)) {
        return false;
      }
      begin = at + next.bytes;
    }
    at += next.bytes;
  }
  return Next(step + 1, text.substr(begin), first && begin == 0);
}

bool Visit::AtText(size_t step, std::string_view text, bool first) const {
  using enum PreTokenizerStep::Kind;
  const PreTokenizerStep::Kind kind = steps[step].kind;
  const std::string& mark = steps[step].text;
  size_t begin = 0;  // of the piece that has not been given on
  const auto give = [&](size_t end) {
    const std::string_view piece = text.substr(begin, end - begin);
    const bool is_first = first && begin == 0;
    begin = end;
    return Next(step + 1, piece, is_first);
  };
  size_t at = 0;
  while ((at = text.find(mark, at)) != text.npos) {
    const size_t end = at + mark.size();
    if (kind != kMergedPrevious && !give(at)) return false;
    if (kind == kRemoved) begin = end;
    if ((kind == kIsolated || kind == kMergedPrevious) && !give(end)) {
      return false;
    }
    at = end;
  }
  return give(text.size());
}

bool Visit::Metaspace(size_t step, std::string_view text, bool first) const {
  const PreTokenizerStep& now = steps[step];
  const bool wanted = now.scheme == PrependScheme::kAlways ||
                      (now.scheme == PrependScheme::kFirst && first);
  std::string marked;
  if (wanted && text[0] != ' ' && !text.starts_with(now.text)) {
    marked = now.text;
  }
  for (const char c : text) {
    if (c == ' ') {
      marked += now.text;
    } else {
      marked += c;
    }
  }
  return Next(step + 1, marked, first);
}

// Characters that `fits` alone (or their runs), and what lies between them.
template <typename Fits>
size_t PieceThatFits(std::string_view text, bool runs, const Fits& fits) {
  const Character head = ReadCharacter(text);
  const bool inside = fits(head);
  size_t at = head.bytes;
  if (inside && !runs) return at;
  while (at < text.size()) {
    const Character next = ReadCharacter(text.substr(at));
    if (fits(next) != inside) break;
    at += next.bytes;
  }
  return at;
}

bool IsDigit(Character c) { return c.digit; }
bool IsPunctuation(Character c) { return c.punctuation; }

// The alphabet of bytes writes these as U+00B2, U+00B3, U+00B9, U+00BC-BE.
bool IsDigitOfBytes(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return (byte >= '0' && byte <= '9') || byte == 0xB2 || byte == 0xB3 ||
         byte == 0xB9 || (byte >= 0xBC && byte <= 0xBE);
}

}  // namespace

bool VisitPieces(const std::vector<PreTokenizerStep>& steps,
                 std::string_view text, bool first, const PieceVisitor& visit) {
  return Visit{steps, visit}.Next(0, text, first);
}

size_t DigitPieceBytes(std::string_view text) {
  return PieceThatFits(text, false, IsDigit);
}
size_t DigitRunPieceBytes(std::string_view text) {
  return PieceThatFits(text, true, IsDigit);
}
size_t PunctuationPieceBytes(std::string_view text) {
  return PieceThatFits(text, false, IsPunctuation);
}
size_t PunctuationRunPieceBytes(std::string_view text) {
  return PieceThatFits(text, true, IsPunctuation);
}

size_t DigitOfBytesPieceBytes(std::string_view text) {
  return IsDigitOfBytes(text[0]) ? 1 : DigitRunOfBytesPieceBytes(text);
}
size_t DigitRunOfBytesPieceBytes(std::string_view text) {
  const bool inside = IsDigitOfBytes(text[0]);
  const auto end = std::find_if(text.begin(), text.end(), [&](char c) {
    return IsDigitOfBytes(c) != inside;
  });
  return static_cast<size_t>(end - text.begin());
}

}  // namespace tarn
