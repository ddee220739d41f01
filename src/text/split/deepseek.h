// The three patterns that DeepSeek-V3 cuts by, one after the other, and the one
// of Falcon. Unlike the others they leave text between their matches, which is
// a piece as well.
#pragma once

#include <cstddef>
#include <string_view>

namespace tarn {

inline constexpr std::string_view kThreeNumbersPattern = R"(\p{N}{1,3})";
/// Chinese and Japanese: U+4E00-9FA5, U+3040-309F, U+30A0-30FF.
inline constexpr std::string_view kHanKanaPattern =
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83"
    "\xBF]+";
/// Its line ends are the characters themselves.
inline constexpr std::string_view kDeepSeekWordsPattern =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
inline constexpr std::string_view kThreeDigitsPattern = "[0-9][0-9][0-9]";

/// Bytes of the first match, or of the text before it (as Gpt2PieceBytes). Two
/// passes over what precedes a match, one over the rest.
size_t ThreeNumbersPieceBytes(std::string_view text);
size_t HanKanaPieceBytes(std::string_view text);
size_t DeepSeekWordsPieceBytes(std::string_view text);
size_t ThreeDigitsPieceBytes(std::string_view text);

}  // namespace tarn
