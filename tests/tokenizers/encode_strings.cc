// encode_strings TOKENIZER: reads strings from standard input, each after its
// length as 8 bytes, and writes a line of JSON for each. For the tests that
// compare with other programs: command lines cannot carry every string.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/model/files.h"

int main(int argc, char** argv) {
  using Json = nlohmann::ordered_json;
  using tarn::EncodeOptions;
  if (argc != 2) return 2;
  const auto tokenizer = tarn::OpenTokenizerFile(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().what());
    return 3;
  }
  std::ios::sync_with_stdio(false);
  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  for (std::string_view rest = input; rest.size() >= sizeof(uint64_t);) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, rest.data(), sizeof(bytes));
    const std::string_view text = rest.substr(sizeof(bytes), bytes);
    rest.remove_prefix(sizeof(bytes) + text.size());
    const auto encode = [&](bool allow_special, bool add_special) {
      EncodeOptions options;
      options.allow_special = allow_special;
      options.add_special = add_special;
      return tokenizer.value().Encode(text, options);
    };
    const auto plain = encode(false, false), special = encode(true, true);
    Json line;
    if (!plain.ok() || !special.ok()) {
      line["error"] = (plain.ok() ? special : plain).error().what();
    } else {
      line["plain"] = plain.value();
      line["special"] = special.value();
      line["text"] = tokenizer.value().DecodeText(plain.value(), false);
      line["bytes"] = tokenizer.value().Decode(plain.value()) == text;
      line["kept"] = tokenizer.value().DecodeText(special.value(), true);
    }
    std::cout << line.dump() << "\n";
  }
  return 0;
}
