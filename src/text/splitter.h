// The scanner that cuts text into the pieces BPE works on, written by hand for
// GPT-2's pattern: one pass, one character of look-ahead, no backtracking.
#pragma once

#include <cstddef>
#include <string_view>

namespace tarn {

/// The pattern the scanner stands for (Radford et al. 2019, released code). A
/// tokenizer.json that names it letter for letter gets the scanner.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Bytes of the first piece of `text`, at least 1; text must not be empty.
/// Pieces tile the text. O(piece) time; one character beyond the piece is read.
size_t FirstPieceBytes(std::string_view text);

}  // namespace tarn
