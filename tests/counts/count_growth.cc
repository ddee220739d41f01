// Runs work that must grow linearly, each kind at one size and at twice that
// size, under valgrind's callgrind, which counts the instructions of CountedRun
// alone and writes a profile after each. Names are printed in that order.
//   count_growth [VOCABULARY...]    files of vocabularies besides its cases
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/executor.h"
#include "core/json.h"
#include "importers/directory.h"
#include "importers/publish.h"
#include "kernels/bench_case.h"
#include "kernels/simd_target.h"
#include "registry.h"
#include "text/bpe_tokenizer.h"
#include "text/bpe_train.h"
#include "text/split/patterns.h"
#include "text/tokenizer.h"
#include "text/unicode/nfc.h"
#include "text/world_tokenizer.h"
#include "weights/weight_source.h"

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

// A pass over the pieces of every pattern: one repeated character, and texts
// whose ends of words or of white space a scanner has to look for.
void CountPatterns() {
  for (const SplitPattern& row : SplitPatterns()) {
    for (const std::string unit :
         {"a", "7", " ", "\n", "!", "\xE4\xB8\xAD", "\xCC\x81", "A", " \n",
          "A\xCC\x81", "Aa", "'s", "\x01", " a", "\t\t7"}) {
      Count(StrCat("split ", row.name, " ", Hex(unit)), [&](int times) {
        const std::string text =
            Repeated(unit, kBytes * static_cast<size_t>(times));
        return [&row, text] {
          for (std::string_view rest = text; !rest.empty();) {
            rest.remove_prefix(row.first_piece_bytes(rest));
          }
        };
      });
    }
  }
}

// A text that is one piece: tokens of up to 64 times one character, as merges
// and with scores, with added tokens that take white space.
void CountPipelines() {
  nlohmann::json vocab = {{"<unk>", 0}}, merges = nlohmann::json::array();
  nlohmann::json scores = nlohmann::json::array({{"<unk>", -20.0}});
  for (const std::string unit : {"a", " ", "\xE4\xB8\xAD"}) {
    std::string text;
    for (int i = 1; i <= 64; ++i) {
      if (i > 1) merges.push_back({text, unit});
      text += unit;
      vocab[text] = vocab.size();
      scores.push_back({text, -1.0 - 0.1 * i});
    }
  }
  nlohmann::json root;
  root["added_tokens"] = {{{"id", vocab.size()},
                           {"content", "\n"},
                           {"rstrip", true},
                           {"lstrip", true}}};
  root["decoder"] = {{"type", "Fuse"}};
  root["model"] = {{"type", "BPE"},
                   {"unk_token", "<unk>"},
                   {"vocab", vocab},
                   {"merges", merges},
                   {"fuse_unk", true}};
  CountEncoding("characters", Tokenizer::FromJson(root.dump()).Take());
  root["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", scores}};
  CountEncoding("unigram", Tokenizer::FromJson(root.dump()).Take());
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

// The tensors of a configuration, without numbers.
class Shapes final : public WeightSource {
 public:
  explicit Shapes(const ModelConfig& config) {
    std::vector<WeightTensor> tensors;
    for (const auto& [name, shape] : WeightShapes(config)) {
      tensors.push_back({name, shape});
    }
    SetTensors(std::move(tensors));
  }
  std::string path() const override { return "shapes"; }
  std::string Where(const WeightTensor& tensor, int64_t) const override {
    return tensor.name;
  }

 private:
  void ReadPart(size_t, WeightRange rows, WeightRange columns,
                float* out) const override {
    std::fill_n(out, rows.size() * columns.size(), 0.0f);
  }
  void ReadStoredPart(size_t index, WeightRange rows, WeightRange columns,
                      uint8_t* out) const override {
    ReadPart(index, rows, columns, reinterpret_cast<float*>(out));
  }
};

// Twice the layers, each of them listed: read, and written as the first type
// that has them.
void CountListedLayers() {
  const auto config = [](int times) {
    constexpr int kLayers = 64;
    nlohmann::json rotates = nlohmann::json::array();
    for (int i = 0; i < kLayers * times; ++i) {
      rotates.push_back(i % 4 < 3 ? 1 : 0);
    }
    nlohmann::json object = {{"model_type", "smollm3"},
                             {"vocab_size", 8},
                             {"hidden_size", 8},
                             {"intermediate_size", 8},
                             {"num_attention_heads", 2},
                             {"num_key_value_heads", 1},
                             {"num_hidden_layers", kLayers * times}};
    object["no_rope_layers"] = rotates;
    return object.dump();
  };
  Count("read listed layers", [&](int times) {
    const std::string text = config(times);
    return [text] { ImportConfig(text, "config.json").Take(); };
  });
  Count("write listed layers", [&](int times) {
    const ModelConfig read = ImportConfig(config(times), "config.json").Take();
    const auto weights = std::make_shared<Shapes>(read);
    return [read, weights] {
      if (Publish(read, weights, "").Take().model_type != "smollm3") {
        throw ArgumentError("Publish", "smollm3", "another type");
      }
    };
  });
}

void CountAll(int count, char** arguments) {
  CountListedLayers();
  CountOwnBpe();
  CountWorld();
  CountPatterns();
  CountPipelines();
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
