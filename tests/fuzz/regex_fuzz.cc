// Grammars of regular expressions. The input: the source, a
// NUL byte, and a text to match.
#include "fuzz/grammar_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tarn;
  const std::vector<std::string> parts =
      fuzz::Parts(fuzz::TextOf(data, size), 2);
  fuzz::Try([&] { fuzz::UseGrammar(Grammar::FromRegex(parts[0]), parts[1]); });
  return 0;
}
