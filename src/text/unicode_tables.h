// Unicode's facts as sorted arrays, searched by halving. The arrays are written
// by scripts/make_unicode_tables.py; the functions over them are in unicode.h
// and nfc.h.
#pragma once

#include <cstdint>
#include <span>

namespace tarn {

/// A value holds from its code point to the next entry's; the first entry is
/// for U+0000. Code point << 3 | class: bits 0-1 are 0 other, 1 letter (L),
/// 2 number (N), 3 white space; bit 2 is set for what \w matches.
extern const std::span<const uint32_t> kCharacterClasses;
/// Code point << 8 | canonical combining class.
extern const std::span<const uint32_t> kCombiningClasses;
/// Code point << 1 | 1 where the combining class is not 0 or the character may
/// change or join the one before it in NFC (NFC_Quick_Check No or Maybe).
extern const std::span<const uint32_t> kNfcUnsafe;
/// Canonical mappings without Hangul, sorted: code point << 42 | first << 21 |
/// second (0: there is none). Only the first part may have a mapping itself.
extern const std::span<const uint64_t> kDecompositions;
/// Indices into kDecompositions of the pairs that compose, sorted by (first,
/// second).
extern const std::span<const uint16_t> kCompositionOrder;

}  // namespace tarn
