// How a safetensors file holds a tensor in groups. A tensor NAME [..., columns]
// with blocks of a scheme is
//   NAME.codes   U8   [..., blocks of a row * bytes of a block's codes]
//   NAME.scales  F16  [..., blocks of a row]
//   NAME.minima  F16  the same; of schemes with a minimum
// and the file's metadata say under `quantised` what they are:
//   {"NAME": {"scheme": "I4_32", "shape": [..., columns]}, ...}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/groups/group_scheme.h"
#include "weights/weight_source.h"

namespace tarn {

inline constexpr const char* kQuantisedKey = "quantised";
inline constexpr const char* kCodesEnd = ".codes";
inline constexpr const char* kScalesEnd = ".scales";
inline constexpr const char* kMinimaEnd = ".minima";

/// Bytes of the codes of a block.
inline int64_t CodeBytes(const GroupScheme& scheme) {
  return scheme.BlockBytes() - scheme.HeadBytes();
}

/// The shapes of codes, and of scales and minima.
std::vector<int64_t> CodesShape(const WeightTensor& tensor);
std::vector<int64_t> ScalesShape(const WeightTensor& tensor);

/// Takes `count` blocks apart; minima is null for a scheme without.
void SplitBlocks(const GroupScheme& scheme, const uint8_t* blocks,
                 int64_t count, uint8_t* codes, uint8_t* scales,
                 uint8_t* minima);
/// The way back.
void JoinBlocks(const GroupScheme& scheme, int64_t count, const uint8_t* codes,
                const uint8_t* scales, const uint8_t* minima, uint8_t* blocks);

/// The text of the metadata for these tensors, whose encodings have schemes.
std::string QuantisedText(const std::vector<WeightTensor>& tensors);
/// The tensors of such a text: distinct names, encodings of GroupEncodings()
/// and shapes of at least two axes, of which only those of two may end a row in
/// the middle of a group. `where` names the text. FormatError in one line.
Result<std::vector<WeightTensor>> QuantisedTensors(std::string_view text,
                                                   const std::string& where);

}  // namespace tarn
