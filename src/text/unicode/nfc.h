// Unicode normalisation forms (Unicode 15, sections 3.11 and 3.12; UAX #15) and
// lower case.
#pragma once

#include <string>
#include <string_view>

namespace tarn {

/// Bytes from the start of `text` that NFC leaves as they are, whatever
/// follows; all of it when text is in NFC and needs no further check. O(bytes).
size_t NfcPrefix(std::string_view text);

/// `text` in NFC. Bytes that are not UTF-8 stay as they are and separate the
/// text around them. O(bytes) time, and O(r log r) for a run of r combining
/// marks: marks are put in order by a sort, so no run is too long.
std::string ToNfc(std::string_view text);

struct NormalForm {
  bool compatible = false;  // NFKC, NFKD
  bool compose = false;     // NFC, NFKC
};
/// `text` in any form, as ToNfc but without a quick check. Unicode 15.0, if
/// utf8proc is the one of Debian 12.
std::string ToForm(std::string_view text, NormalForm form);

/// Each character in lower case by itself (no rule for a final sigma; U+0130
/// becomes two characters). Bytes that are not UTF-8 stay. O(bytes).
std::string ToLower(std::string_view text);

}  // namespace tarn
