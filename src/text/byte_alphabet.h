// GPT-2's way to write bytes in JSON: each byte as one printable character, so
// that a vocabulary of byte strings is text (Radford et al. 2019, released
// code). Bytes 33-126, 161-172 and 174-255 stand for themselves, the other 68
// in order for U+0100 to U+0143; a space reads as U+0120.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tarn {

std::string BytesToAlphabet(std::string_view bytes);
/// Empty when `text` holds anything but characters of the alphabet.
std::optional<std::string> AlphabetToBytes(std::string_view text);

}  // namespace tarn
