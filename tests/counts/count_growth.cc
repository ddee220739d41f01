// Runs work that must grow linearly, each kind at one size and at twice that
// size, under valgrind's callgrind, which counts the instructions of CountedRun
// alone and writes a profile after each. Names are printed in that order.
//   count_growth [VOCABULARY...]    files of vocabularies besides its cases
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/executor.h"
#include "core/json.h"
#include "kernels/bench_case.h"
#include "kernels/simd_target.h"
#include "registry.h"
#include "text/bpe_tokenizer.h"
#include "text/bpe_train.h"
#include "text/nfc.h"
#include "text/tokenizer.h"
#include "text/world_tokenizer.h"

using Work = std::function<void()>;

// C linkage: the name that --toggle-collect asks for is the plain one.
extern "C" __attribute__((noinline)) void CountedRun(const Work* work) {
  (*work)();
}

namespace tarn {
namespace {

constexpr size_t kBytes = 1 << 15;  // and twice as many
constexpr const char* kCharacters[] = {
    "a",    "7",       " ", "\n", "!", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80",
    "\x80", "\xCC\x81"};

void Count(const std::string& name, const std::function<Work(int)>& prepare) {
  std::printf("%s\n", name.c_str());
  for (const int times : {1, 2}) {
    const Work work = prepare(times);
    CountedRun(&work);
  }
}

std::string Repeated(const std::string& part, size_t bytes) {
  std::string text;
  while (text.size() + part.size() <= bytes) text += part;
  return text;
}

std::string Hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr char kHex[] = "0123456789abcdef";
    text += kHex[static_cast<uint8_t>(c) / 16];
    text += kHex[static_cast<uint8_t>(c) % 16];
  }
  return text;
}

// One repeated character is the worst that a text can be: pieces, runs of marks
// and places of one merge are then as long as the text.
void CountEncoding(const std::string& name, const Tokenizer& tokenizer) {
  for (const std::string character : kCharacters) {
    Count("encode " + name + " " + Hex(character), [&](int times) {
      const std::string text =
          Repeated(character, kBytes * static_cast<size_t>(times));
      return [&tokenizer, text] { (void)tokenizer.Encode(text).ok(); };
    });
  }
}

// Merges up to many bytes of each character, with and without NFC.
void CountOwnBpe() {
  std::string text;
  for (const char* character : kCharacters) {
    for (int i = 0; i < 300; ++i) text += character;
  }
  BpeDefinition definition = TrainBpe({text}, {384, nullptr});
  for (const bool nfc : {false, true}) {
    definition.nfc = nfc;
    CountEncoding(nfc ? "bpe+nfc" : "bpe", Tokenizer::Bpe(definition));
  }
}

void CountWorld() {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string hex = Hex({static_cast<char>(byte)});
    lines += StrCat(byte + 1, " b'\\x", hex, "' 1\n");
  }
  for (int i = 2; i <= 128; ++i) {
    lines += StrCat(255 + i, " '", std::string(static_cast<size_t>(i), 'a'),
                    "' ", i, "\n");
  }
  CountEncoding("world",
                Tokenizer::World(WorldTokenizer::FromText(lines).Take()));
}

// Marks of two classes by turns, which NFC has to bring into order.
void CountNfc() {
  Count("nfc of marks", [](int times) {
    const std::string text =
        "a" + Repeated("\xCC\x81\xCC\xA3", kBytes * static_cast<size_t>(times));
    return [text] { (void)ToNfc(text); };
  });
}

void CountJson() {
  for (const std::string token : {"1", "0.1", "\"x\""}) {
    Count("json " + token, [token](int times) {
      std::string text = token;
      const size_t at = text.find_last_of("1x");
      text.insert(at, kBytes * static_cast<size_t>(times), text[at]);
      return [text] { (void)ParseStrictJson(text, "text", 1 << 20).ok(); };
    });
  }
}

// A window over twice the tokens.
void CountLocalAttention() {
  Count("local attention", [](int times) {
    const std::shared_ptr<bench::Case> kernel = bench::MakeCase(
        "softmax_attention_forward",
        StrCat("seq_len=", 512 * times, " heads=1 d_key=32 local_context=64"),
        1);
    return [kernel] {
      SerialExecutor serial;
      kernel->Run(serial);
    };
  });
}

void CountAll(int count, char** arguments) {
  CountOwnBpe();
  CountWorld();
  CountNfc();
  CountJson();
  CountLocalAttention();
  for (int i = 1; i < count; ++i) {
    CountEncoding(std::filesystem::path(arguments[i]).filename(),
                  Tokenizer::OpenFile(arguments[i]).Take());
  }
}

}  // namespace
}  // namespace tarn

int main(int count, char** arguments) {
  try {
    tarn::ApplySimdTargetFromEnvironment();
    tarn::CountAll(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "count_growth: %s\n", error.what());
    return 2;
  }
  return 0;
}
