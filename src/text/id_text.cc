#include "text/id_text.h"

#include <algorithm>
#include <charconv>

#include "core/text.h"

namespace tarn {
namespace {

// The bytes of a word that a message shows at most.
constexpr size_t kShown = 16;
constexpr std::string_view kWhiteSpace = " \t\n\r";

// -1 unless all of `word` is a number below vocab_size as AppendId writes it.
int32_t IdOf(std::string_view word, int64_t vocab_size) {
  if (word.size() > 1 && word[0] == '0') return -1;
  int32_t id = 0;
  // from_chars would read a sign.
  if (word[0] < '0' || word[0] > '9') return -1;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, id);
  if (error != std::errc() || stop != end || id >= vocab_size) return -1;
  return id;
}

}  // namespace

Result<std::vector<int32_t>> IdsFromText(std::string_view text,
                                         int64_t vocab_size, uint64_t offset) {
  std::vector<int32_t> ids;
  for (size_t at = 0;;) {
    at = text.find_first_not_of(kWhiteSpace, at);
    if (at == std::string_view::npos) return ids;
    const size_t end =
        std::min(text.find_first_of(kWhiteSpace, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const int32_t id = IdOf(word, vocab_size);
    if (id < 0) {
      return FormatError(StrCat("text: byte ", offset + at),
                         StrCat("a token id from 0 to ", vocab_size - 1),
                         Quoted(std::string(word.substr(0, kShown))));
    }
    ids.push_back(id);
    at = end;
  }
}

void AppendId(int32_t id, std::string& out) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, id).ptr;
  out += ' ';
  out.append(digits, end);
}

}  // namespace tarn
