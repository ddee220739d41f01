// The steps by which a tokenizer.json cuts a text into the pieces that its
// model turns into tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

/// When the space that stands for the start of a word is put before a text.
enum class PrependScheme : uint8_t { kNever, kFirst, kAlways };

struct PreTokenizerStep {
  enum class Kind : uint8_t {
    kScan,            // tiles the text by `first_piece_bytes`
    kWithoutSpaces,   // pieces between white space
    kIsolated,        // `text` is a piece each time
    kRemoved,         // `text` is left out
    kMergedPrevious,  // a piece ends after each `text`
    kMergedNext,      // a piece begins with each `text`
    kMetaspace,       // spaces become `text`, which is put first by `scheme`
  };
  Kind kind;
  size_t (*first_piece_bytes)(std::string_view text) = nullptr;
  std::string text = {};
  PrependScheme scheme = PrependScheme::kNever;
};

/// Receives a piece, never empty; false ends the cutting.
using PieceVisitor = std::function<bool(std::string_view piece)>;

/// Cuts by each step what the steps before it left. first: whether `text` is
/// the start of the whole text. False when the visitor ended it. O(bytes) for
/// each step. A piece lives only during its visit.
bool VisitPieces(const std::vector<PreTokenizerStep>& steps,
                 std::string_view text, bool first, const PieceVisitor& visit);

/// Scanners (PreTokenizerStep::first_piece_bytes) of the steps that have no
/// pattern. Digits: every number alone, or whole runs; ...OfBytes: among the
/// bytes that ByteLevel makes, where the six bytes that stand for themselves as
/// superscripts and fractions count. Punctuation: every sign alone, or runs.
size_t DigitPieceBytes(std::string_view text);
size_t DigitRunPieceBytes(std::string_view text);
size_t DigitOfBytesPieceBytes(std::string_view text);
size_t DigitRunOfBytesPieceBytes(std::string_view text);
size_t PunctuationPieceBytes(std::string_view text);
size_t PunctuationRunPieceBytes(std::string_view text);

}  // namespace tarn
