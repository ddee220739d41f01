// Model directories for the tests of the C interface and of its C++ owner. No
// internal header is included: a test of tarn.hpp sees what a user's program
// sees.
#pragma once

#include <string>

namespace tarn_test {

/// Writes small models of random weights into `root`:
///   linear, full   language models on bytes
///   seq2seq, encoder
///   char           5 rows, 3 of them characters: a, b, the euro sign
///   ids            20,000 numbers: tokens of up to 6 bytes of text
///   nfc            bytes of text that is normalised first, which may lengthen
///   mtp            on bytes, with an extra prediction head
///   image          6 x 4 pixels, fewer outputs than there are bytes
void WriteModels(const std::string& root);

}  // namespace tarn_test
