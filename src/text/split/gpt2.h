// GPT-2's pattern as a scanner, written by hand: one pass, one character of
// look-ahead, no backtracking.
#pragma once

#include <cstddef>
#include <string_view>

namespace tarn {

/// Radford et al. 2019, released code.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Bytes of the first piece of `text`, at least 1; text must not be empty.
/// Pieces tile the text. O(piece) time; one character beyond the piece is read.
size_t Gpt2PieceBytes(std::string_view text);

}  // namespace tarn
