// The pattern of cl100k and of the models that took it over, each as a scanner:
// one pass, no backtracking.
#pragma once

#include <cstddef>
#include <string_view>

namespace tarn {

/// cl100k as tokenizer.json files spell it; Llama 3, dbrx, OLMo 2, Granite 4.
inline constexpr std::string_view kCl100kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// The newer spelling. Oniguruma, which the `tokenizers` package calls, reads
/// {1,3}+ as a group that repeats and not as a possessive one: a run of numbers
/// is one piece, however long.
inline constexpr std::string_view kNewCl100kPattern =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
/// Qwen 2, 2.5 and 3.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
/// Qwen 3.5: marks belong to words.
inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// As Gpt2PieceBytes (gpt2.h): bytes of the first piece, at least 1. O(piece)
/// and the white space after it.
size_t Cl100kPieceBytes(std::string_view text);
size_t NewCl100kPieceBytes(std::string_view text);
size_t Qwen2PieceBytes(std::string_view text);
size_t Qwen35PieceBytes(std::string_view text);

}  // namespace tarn
