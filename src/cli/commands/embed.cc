// `tarn embed`: texts in, their vectors out.
#include "runtime/generate/embed.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/cli.h"
#include "cli/console/lines.h"
#include "cli/console/output.h"
#include "cli/console/parse.h"
#include "cli/console/signals.h"

namespace tarn::cli {
namespace {

struct EmbedFlags {
  std::string dir, pooling = "mean";
  std::vector<std::string> files;
  ModelFlags model;
  int64_t batch = 64;
  bool whole = false, json = false;
};

constexpr char kEmbedFooter[] =
    "Each line of the FILEs is one text, with --whole each FILE. stdout gets "
    "one\n"
    "line for each, in order: the numbers of its vector, which has length 1, "
    "with\n"
    "spaces between them. The product of two vectors is their cosine. An empty "
    "text\n"
    "is an error. --batch texts run at a time, which is faster and does not "
    "change\n"
    "the results.\n\n"
    "Examples:\n"
    "  tarn embed models/demo notes.txt > vectors.txt\n"
    "  echo 'Once upon a time' | tarn embed models/demo\n"
    "  tarn embed model.gguf a.txt b.txt --whole --json | jq .embedding\n";

void Declare(ArgumentParser& parser, EmbedFlags& flags) {
  parser
      .Add("DIR", flags.dir, "model directory or GGUF file of a language model")
      .Required();
  parser.Add("FILE", flags.files,
             "one text per line; - is standard input, as is none");
  parser
      .Add("--pooling", flags.pooling,
           "mean of the rows of all tokens, or the row of the last")
      .OneOf({"mean", "last"})
      .ShowDefault();
  parser.AddFlag("--whole", flags.whole,
                 "treat a file as one text, not as lines");
  parser.Add("--batch", flags.batch, "texts run at a time")
      .Whole(1, 4096)
      .ShowDefault();
  DeclareModelFlags(parser, flags.model, flags.json);
  DeclareCacheFlag(parser, flags.model);
  parser.Footer(kEmbedFooter);
}

std::string VectorLine(std::span<const float> vector, size_t tokens,
                       bool json) {
  std::string line =
      json ? StrCat("{\"tokens\":", tokens, ",\"embedding\":[") : std::string();
  std::array<char, 32> digits;
  for (size_t i = 0; i < vector.size(); ++i) {
    if (i > 0) line += json ? ',' : ' ';
    // The shortest decimals that give the same float.
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), vector[i]);
    line.append(digits.data(), end.ptr);
  }
  return line + (json ? "]}\n" : "\n");
}

class EmbedTool {
 public:
  EmbedTool(const EmbedFlags& flags, const LoadedModel& opened)
      : flags_(flags), opened_(opened) {}

  void Run(const std::string& path) {
    if (flags_.whole) {
      InputFile input(path);
      std::string text;
      while (PendingSignal() == 0 && input.Read(1 << 20, text)) {
      }
      if (PendingSignal() == 0) Add(text, InputName(path));
      return;
    }
    LineReader lines(path);
    std::string line;
    while (!payload_.reader_gone() && lines.Next(line)) {
      Add(line, lines.Place());
    }
  }

  // Texts read before a signal are still answered.
  void Finish() {
    Write();
    payload_.Flush();
  }

 private:
  void Add(const std::string& text, const std::string& place) {
    EncodeOptions options;
    options.add_special = true;
    auto tokens = opened_.tokenizer.Encode(text, options);
    if (!tokens.ok()) {
      throw ExitError(kExitBadModel,
                      StrCat(place, ": ", tokens.error().what()));
    }
    const auto count = static_cast<int64_t>(tokens.value().size());
    if (text.empty() || count == 0) {
      throw ExitError(kExitBadModel,
                      StrCat(place, ": want a text, got an empty one"));
    }
    if (count > opened_.model.max_tokens()) {
      throw ExitError(kExitBadModel, StrCat(place, ": want at most ",
                                            opened_.model.max_tokens(),
                                            " tokens, got ", count));
    }
    texts_.push_back(std::move(tokens).Take());
    if (static_cast<int64_t>(texts_.size()) == flags_.batch) Write();
  }

  void Write() {
    if (texts_.empty() || payload_.reader_gone()) return;
    std::vector<size_t> counts;
    for (const auto& text : texts_) counts.push_back(text.size());
    const std::vector<float> vectors =
        EmbedTexts(opened_.model, std::exchange(texts_, {}),
                   ParsePooling("--pooling", flags_.pooling));
    const auto width = static_cast<size_t>(opened_.model.config().d_model);
    for (size_t i = 0; i < counts.size(); ++i) {
      payload_.Write(VectorLine(std::span(vectors).subspan(i * width, width),
                                counts[i], flags_.json));
    }
    payload_.FlushIfDue();
  }

  const EmbedFlags& flags_;
  const LoadedModel& opened_;
  Payload payload_{stdout};
  std::vector<std::vector<int32_t>> texts_;
};

}  // namespace

int Embed(int argc, char** argv) {
  EmbedFlags flags;
  ArgumentParser parser("Turns texts into vectors.", "tarn embed");
  Declare(parser, flags);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  const LoadedModel opened = OpenModelPath(flags.dir, flags.model.Options());
  if (opened.model.config().arch != Arch::kDecoder) {
    throw ExitError(kExitBadModel,
                    StrCat(flags.dir, ": want a language model, got arch '",
                           Name(opened.model.config().arch), "'"));
  }
  if (flags.files.empty()) flags.files.push_back("-");
  EmbedTool tool(flags, opened);
  for (const std::string& path : flags.files) tool.Run(path);
  tool.Finish();
  const int signal = PendingSignal();
  return signal == 0 ? kExitOk : SignalExitCode(signal);
}

}  // namespace tarn::cli
