// `rwkv`: the vocabulary of RWKV's World models. A token is what Python writes
// for its bytes between the quotes; the token 0 ends a text.
#include "core/text.h"
#include "text/keys/keyed_tokenizer.h"
#include "text/world_tokenizer.h"

namespace tarn {
namespace {

constexpr char kTextEnd[] = "<s>";

// Text between quotes of either sort as the inside of b'...'.
std::string InSingleQuotes(std::string_view escaped) {
  std::string text;
  for (size_t i = 0; i < escaped.size(); ++i) {
    if (escaped[i] == '\'') text += '\\';
    text += escaped[i];
    if (escaped[i] == '\\' && i + 1 < escaped.size()) text += escaped[++i];
  }
  return text;
}

std::string EscapedByte(char c) {
  constexpr char kDigits[] = "0123456789abcdef";
  const auto byte = static_cast<uint8_t>(c);
  if (c == '\t') return "\\t";
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\\' || c == '\'') return std::string("\\") + c;
  if (byte >= 0x20 && byte < 0x7F) return std::string(1, c);
  return std::string("\\x") + kDigits[byte >> 4] + kDigits[byte & 15];
}

// What Python writes for the bytes, between single quotes.
std::string EscapedText(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += EscapedByte(c);
  return text;
}

}  // namespace

// As the lines of the vocabulary's file, whose reader checks the rest.
Tokenizer ReadEscapedBytes(const VocabularyKeys& keys) {
  const size_t count = TokensInUse(keys);
  std::string text;
  for (size_t id = 1; id < count; ++id) {
    const std::string place = StrCat("tokens[", id, "]");
    if (TypeOfToken(keys, id) == TokenType::kUnused) {
      RefuseKey(place, "a token, as there are some after it", "an unused one");
    }
    const Result<std::string> bytes =
        ParsePythonLiteral(StrCat("b'", InSingleQuotes(keys.tokens[id]), "'"));
    if (!bytes.ok()) {
      RefuseKey(place, "bytes as Python writes them", Quoted(keys.tokens[id]));
    }
    text += StrCat(id, " b'", EscapedText(bytes.value()), "' ",
                   bytes.value().size(), "\n");
  }
  Result<WorldTokenizer> world = WorldTokenizer::FromText(text);
  if (!world.ok()) {
    const Error& error = world.error();
    RefuseKey(StrCat("tokens: ", error.where()), error.wanted(), error.given());
  }
  return Tokenizer::World(std::move(world).Take());
}

VocabularyKeys KeysOfWorld(const WorldTokenizer& world) {
  KeptTexts texts;
  VocabularyKeys keys;
  keys.model = "rwkv";
  keys.tokens.push_back(kTextEnd);
  keys.types.push_back(TokenType::kControl);
  for (int64_t id = 1; id < world.vocab_size(); ++id) {
    keys.tokens.push_back(
        texts.Keep(EscapedText(world.Bytes(static_cast<int32_t>(id)))));
    keys.types.push_back(TokenType::kNormal);
  }
  keys.bos = keys.eos = 0;
  keys.owner = texts.owner();
  return keys;
}

}  // namespace tarn
