// The encodings of GGUF's tensors. Formulas and layouts of blocks: ggml's
// ggml-common.h and ggml-quants.c; the table of types is in types.cc.
#pragma once

#include <cstdint>
#include <string>

#include "weights/encoding.h"

namespace tarn {

extern const Encoding kQ80Encoding, kQ40Encoding, kQ41Encoding, kQ50Encoding,
    kQ51Encoding, kQ2KEncoding, kQ3KEncoding, kQ4KEncoding, kQ5KEncoding,
    kQ6KEncoding, kIq4NlEncoding, kIq4XsEncoding, kMxfp4Encoding;

/// The encoding that a tensor's type number stands for; null: a type that tarn
/// does not read.
const Encoding* GgufEncodingOf(uint32_t type);
/// And back; throws ArgumentError for an encoding that GGUF lacks.
uint32_t GgufTypeOf(const Encoding& encoding);
/// GGUF's encoding with the same blocks, itself or of the same scheme; null:
/// none.
const Encoding* GgufEncodingLike(const Encoding& encoding);
/// The name of a type number, of those that are not read too: "IQ2_XXS", or its
/// number.
std::string GgufTypeName(uint32_t type);
/// The names of all types that are read: "F32, F16, ...".
std::string GgufTypeNames();

}  // namespace tarn
