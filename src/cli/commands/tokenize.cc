// `tarn tokenize`: text to token ids and back, and the training of a BPE.
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/console/input.h"
#include "cli/console/output.h"
#include "cli/console/parse.h"
#include "cli/console/signals.h"
#include "core/file.h"
#include "core/text.h"
#include "runtime/model/files.h"
#include "text/bpe_train.h"

namespace tarn::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TokenizeFlags {
  std::vector<std::string> paths;
  bool train = false;
  int64_t vocab = 4096;
  std::string out;
  bool decode = false, count = false, whole = false, allow_special = false;
  bool add_special = false;
  bool json = false;
};

constexpr char kTokenizeFooter[] =
    "TOKENIZER is a model directory or GGUF file, a tokenizer.json (tarn's or\n"
    "Hugging Face's), GPT-2's encoder.json with vocab.bpe in the same folder, "
    "or\n"
    "the RWKV World vocabulary. Text comes from FILEs or standard input. Each\n"
    "line becomes a line of ids, without its line end; --whole treats an "
    "input\n"
    "as one text. --decode turns each line of ids into a line of text. "
    "Special\n"
    "tokens are recognised in the text only with --allow-special.\n"
    "--train learns a byte-level BPE from FILEs, in which ids 0 to 255 are "
    "the\n"
    "bytes, for `tarn train --tokenizer bpe --tokenizer-file`.\n\n"
    "Examples:\n"
    "  tarn tokenize --train text.txt --vocab 4096 --out bpe.json\n"
    "  tarn tokenize bpe.json page.txt > page.ids\n"
    "  tarn tokenize bpe.json --decode page.ids\n"
    "  tarn tokenize models/demo page.txt --count\n"
    "  echo 'Hello world' | tarn tokenize bpe.json --json | jq .ids\n";

void Declare(ArgumentParser& parser, TokenizeFlags& flags) {
  parser
      .Add("PATH", flags.paths,
           "TOKENIZER [FILE...], or with --train FILE...; - is standard "
           "input")
      .Required();
  Argument train =
      parser.AddFlag("--train", flags.train, "learn a BPE from the FILEs");
  parser
      .Add("--vocab", flags.vocab,
           "--train: number of ids, including the 256 bytes")
      .Whole(256, kMaxBpeTokens)
      .ShowDefault()
      .Needs(train);
  Argument out = parser.Add("--out", flags.out,
                            "--train: file to write; - is standard "
                            "output");
  out.Needs(train);
  train.Needs(out);
  parser.AddFlag("--decode", flags.decode, "turn ids into text")
      .Excludes(train);
  parser
      .AddFlag("--count", flags.count,
               "print only the numbers of tokens and bytes")
      .Excludes(train);
  parser
      .AddFlag("--whole", flags.whole,
               "treat an input as one text, not as lines")
      .Excludes(train);
  parser
      .AddFlag("--allow-special", flags.allow_special,
               "recognise special tokens in the text")
      .Excludes(train);
  parser
      .AddFlag("--add-special", flags.add_special,
               "add the tokens that the file puts before and after a text")
      .Excludes(train);
  parser.AddFlag("--json", flags.json, "one JSON object per line")
      .Excludes(train);
  parser.Footer(kTokenizeFooter);
}

// Calls `use` for each line without its end (the last one may have none), or
// once for all of it.
template <typename Use>
void ForEachText(const std::string& path, bool whole, const Use& use) {
  InputFile input(path);
  std::string held;
  uint64_t offset = 0;  // of held[0] in the input
  for (bool more = true; more && PendingSignal() == 0;) {
    const size_t old = held.size();
    more = input.Read(1 << 16, held);
    if (whole) continue;
    size_t begin = 0;
    for (size_t end = held.find('\n', old); end != held.npos;
         end = held.find('\n', begin)) {
      use(std::string_view(held).substr(begin, end - begin), offset + begin);
      begin = end + 1;
    }
    held.erase(0, begin);
    offset += begin;
  }
  if (PendingSignal() == 0 && (whole || !held.empty())) use(held, offset);
}

class Tool {
 public:
  Tool(const TokenizeFlags& flags, const Tokenizer& tokenizer)
      : flags_(flags), tokenizer_(tokenizer) {}

  void Run(const std::string& path) {
    path_ = path;
    // Counting takes a file as it is: its line ends are text too.
    const bool whole = flags_.whole || (flags_.count && !flags_.decode);
    ForEachText(path, whole, [&](std::string_view text, uint64_t offset) {
      if (flags_.decode) {
        Decode(text, offset);
      } else {
        Encode(text, offset);
      }
    });
  }

  void Finish() {
    if (flags_.count) {
      Json counts = {{"tokens", tokens_}, {"bytes", bytes_}};
      payload_.Write(
          flags_.json ? counts.dump() + "\n"
                      : StrCat("tokens ", tokens_, "\nbytes ", bytes_, "\n"));
    }
    payload_.Flush();
  }

 private:
  void Encode(std::string_view text, uint64_t offset) {
    EncodeOptions options;
    options.allow_special = flags_.allow_special;
    options.add_special = flags_.add_special;
    options.offset = offset;
    const auto ids = tokenizer_.Encode(text, options);
    if (!ids.ok()) Fail(ids.error().what());
    tokens_ += ids.value().size();
    bytes_ += text.size();
    if (flags_.count) return;
    if (flags_.json) {
      payload_.Write(Json{{"ids", ids.value()}}.dump() + "\n");
      return;
    }
    std::string line;
    for (const int32_t id : ids.value()) {
      line += (line.empty() ? "" : " ") + std::to_string(id);
    }
    payload_.Write(line + "\n");
  }

  void Decode(std::string_view text, uint64_t offset) {
    constexpr std::string_view kBetween = " \t\r\n";
    std::string bytes;
    size_t at = text.find_first_not_of(kBetween);
    while (at != text.npos) {
      const size_t end =
          std::min(text.find_first_of(kBetween, at), text.size());
      tokenizer_.Decode(IdOf(text.substr(at, end - at), offset + at), bytes);
      ++tokens_;
      at = text.find_first_not_of(kBetween, end);
    }
    bytes_ += bytes.size();
    if (flags_.count) return;
    if (flags_.json) {
      payload_.Write(Json{{"text", bytes}}.dump(
                         -1, ' ', false, Json::error_handler_t::replace) +
                     "\n");
      return;
    }
    payload_.Write(flags_.whole ? bytes : bytes + "\n");
  }

  int32_t IdOf(std::string_view word, uint64_t offset) const {
    int32_t id = -1;
    const char* end = word.data() + word.size();
    const auto [at, error] = std::from_chars(word.data(), end, id);
    if (error != std::errc() || at != end || id < 0 ||
        id >= tokenizer_.vocab_size()) {
      Fail(StrCat("byte ", offset, ": want an id from 0 to ",
                  tokenizer_.vocab_size() - 1, ", got ", Quoted(word)));
    }
    return id;
  }

  [[noreturn]] void Fail(const std::string& what) const {
    throw ExitError(kExitBadModel, StrCat(InputName(path_), ": ", what));
  }

  const TokenizeFlags& flags_;
  const Tokenizer& tokenizer_;
  std::string path_;
  Payload payload_{stdout};
  uint64_t tokens_ = 0, bytes_ = 0;
};

int SignalOrOk() {
  const int signal = PendingSignal();
  return signal == 0 ? kExitOk : SignalExitCode(signal);
}

int Train(const TokenizeFlags& flags) {
  std::vector<std::string> texts;
  for (const std::string& path : flags.paths) {
    InputFile input(path);
    texts.emplace_back();
    while (PendingSignal() == 0 && input.Read(1 << 20, texts.back())) {
    }
  }
  if (PendingSignal() != 0) return SignalOrOk();
  Progress progress("tokenize", static_cast<uint64_t>(flags.vocab));
  BpeTrainOptions options;
  options.vocab_size = flags.vocab;
  options.progress = [&](int64_t tokens) {
    progress.Update(static_cast<uint64_t>(tokens), StrCat(tokens, " tokens"));
    return PendingSignal() == 0;
  };
  std::string json;
  try {
    const Tokenizer tokenizer =
        Tokenizer::Bpe(TrainBpe({texts.begin(), texts.end()}, options));
    json = tokenizer.ToJson();
    if (tokenizer.vocab_size() < flags.vocab) {
      std::fprintf(stderr,
                   "tarn tokenize: %lld tokens: no other pair occurs twice\n",
                   static_cast<long long>(tokenizer.vocab_size()));
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    return SignalOrOk();
  }
  if (flags.out == "-") {
    Payload payload(stdout);
    payload.Write(json);
    payload.Flush();
  } else {
    WriteFileAtomically(flags.out, json);
  }
  return kExitOk;
}

}  // namespace

int Tokenize(int argc, char** argv) {
  TokenizeFlags flags;
  ArgumentParser parser(
      "Turns text into token ids and back; trains a tokenizer.",
      "tarn tokenize");
  Declare(parser, flags);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  if (flags.train) return Train(flags);
  const Result<Tokenizer> tokenizer = OpenTokenizerFile(flags.paths[0]);
  if (!tokenizer.ok()) {
    throw ExitError(kExitBadModel, tokenizer.error().what());
  }
  Tool tool(flags, tokenizer.value());
  std::vector<std::string> inputs(flags.paths.begin() + 1, flags.paths.end());
  if (inputs.empty()) inputs.push_back("-");
  for (const std::string& path : inputs) tool.Run(path);
  tool.Finish();
  return SignalOrOk();
}

}  // namespace tarn::cli
