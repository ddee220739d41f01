// `tarn eval`: how well a model does on a file, over the whole of it.
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/console/output.h"
#include "cli/console/parse.h"
#include "cli/console/signals.h"
#include "cli/console/token_file.h"
#include "cli/eval/images.h"
#include "cli/eval/pairs.h"
#include "cli/eval/position.h"
#include "cli/eval/run.h"

namespace tarn::cli {
namespace {

struct EvalFlags {
  std::string dir, file;
  ModelFlags model;
  EvalImageFlags images;
  train::PairColumns columns;
  int64_t batch = 16, beam = 1;
  int64_t max_tokens = 0, near = 1000, steps = 10'000;
  std::string records = "auto";
  bool per_token = false, by_position = false;
  bool json = false;
};

constexpr char kEvalFooter[] =
    "Language models: the whole file is one sequence. Each token is predicted\n"
    "from all tokens before it; the first one is not scored. bits_per_byte\n"
    "counts the bytes of the scored tokens. --per-token adds `logprobs`, "
    "natural\n"
    "logarithms, one for each token after the first. --by-position prints "
    "bits\n"
    "per token by position in the stream, and the cost of a token: it keeps "
    "the\n"
    "state after --near tokens, then times single steps from this state and\n"
    "from the last one alternately, and reports the memory in use at both.\n"
    "Classifiers: lines of \"label TAB text\"; accuracy. Sequence-to-sequence\n"
    "models: lines of \"source TAB target\"; edits per target token and exact\n"
    "matches of the best hypothesis. Both also read CSV files with a header, "
    "as\n"
    "`tarn train` does. --batch changes only the speed.\n"
    "Image models: images as `tarn train` reads them; bits/dim of all bytes\n"
    "except the first, or of those after the first --pixels pixels.\n\n"
    "Examples:\n"
    "  tarn eval models/demo held-out.txt\n"
    "  tarn eval models/demo - --json < held-out.txt\n"
    "  tarn eval models/demo page.txt --per-token --json | jq .logprobs\n"
    "  tarn eval models/demo book.txt --by-position --max-tokens 1000000\n"
    "  tarn eval models/dna genome.fna.gz --records fasta\n"
    "  tarn eval models/names held-out.tsv --beam 4\n"
    "  tarn eval models/reviews held-out.csv --label-column stars\n"
    "  tarn eval models/digits t10k-images-idx3-ubyte.gz --index 0-99 --json\n";

void Declare(ArgumentParser& parser, EvalFlags& flags) {
  parser.Add("DIR", flags.dir, "model directory or GGUF file").Required();
  parser.Add("FILE", flags.file, "text (- is standard input), or images")
      .Required();
  const Argument per_token = parser.AddFlag(
      "--per-token", flags.per_token, "add the log-probability of each token");
  Argument by_position =
      parser.AddFlag("--by-position", flags.by_position,
                     "bits per token, time per token and memory by position");
  parser
      .Add("--max-tokens", flags.max_tokens,
           "tokens to read from the beginning of the text; 0: all")
      .Whole(0, int64_t{1} << 40)
      .ShowDefault();
  parser
      .Add("--records", flags.records,
           "fasta: the letters of a genome, without headers and line "
           "ends")
      .OneOf({"auto", "fasta"})
      .ShowDefault();
  parser.Add("--near", flags.near, "position of the early state")
      .Whole(1, int64_t{1} << 40)
      .Needs(by_position)
      .ShowDefault();
  parser.Add("--steps", flags.steps, "steps timed from each state; 0: none")
      .Whole(0, 100'000'000)
      .Needs(by_position)
      .ShowDefault();
  by_position.Excludes(per_token);
  parser.Add("--text-column", flags.columns.input,
             "CSV: column of the text or source (default: \"text\", or "
             "\"source\")");
  parser.Add("--label-column", flags.columns.output,
             "CSV: column of the label or target (default: \"label\", or "
             "\"target\")");
  parser.Add("--batch", flags.batch, "pairs run at a time")
      .Whole(1, 4096)
      .ShowDefault();
  parser
      .Add("--beam", flags.beam,
           "sequence-to-sequence: hypotheses kept; 1: greedy")
      .Whole(1, 1024)
      .ShowDefault();
  DeclareImageChoice(parser, flags.images.images, "image models: ");
  parser
      .Add("--pixels", flags.images.pixels,
           "image models: pixels that are given and not scored")
      .Whole(0, INT32_MAX)
      .ShowDefault();
  parser.AddFlag("--per-image", flags.images.per_image,
                 "image models: add the bits/dim of each image");
  DeclareModelFlags(parser, flags.model, flags.json);
  DeclareCacheFlag(parser, flags.model);
  parser.Footer(kEvalFooter);
}

InputForm FormOf(const EvalFlags& flags) {
  return flags.records == "fasta" ? InputForm::kFasta : InputForm::kPlain;
}

// Log-probabilities are written as they come, in an array first in the object:
// a file of any size needs no memory for them.
class EvalReport {
 public:
  explicit EvalReport(const EvalFlags& flags) : flags_(flags) {
    if (flags_.json) payload_.Write("{");
  }
  void Add(double logprob) {
    if (!flags_.per_token) return;
    if (flags_.json) {
      payload_.Write(first_ ? "\"logprobs\":[" : ",");
      payload_.Write(NumberText(logprob));
    } else {
      payload_.Write(NumberText(logprob) + "\n");
    }
    first_ = false;
  }
  bool reader_gone() const { return payload_.reader_gone(); }
  void Finish(const Scorer& scorer, uint64_t scored_bytes) {
    if (flags_.json && flags_.per_token) {
      payload_.Write(first_ ? "\"logprobs\":[]," : "],");
    }
    const double nats = scorer.NatsPerToken();
    const double bits =
        scored_bytes == 0
            ? 0
            : scorer.nats() / std::log(2.0) / static_cast<double>(scored_bytes);
    Field("tokens", std::to_string(scorer.tokens()), ",");
    Field("nats_per_token", NumberText(nats), ",");
    Field("perplexity", NumberText(std::exp(nats)), ",");
    Field("bits_per_byte", NumberText(bits), "}\n");
    payload_.Flush();
  }

 private:
  void Field(const char* name, const std::string& value, const char* end) {
    payload_.Write(flags_.json ? StrCat("\"", name, "\":", value, end)
                               : StrCat(name, " ", value, "\n"));
  }
  const EvalFlags& flags_;
  Payload payload_{stdout};
  bool first_ = true;
};

// Scores the text to its end, or until a signal or a closed pipe.
void ScoreFile(TokenFile& text, Scorer& scorer, EvalReport& report) {
  Progress progress("eval", text.size());
  std::vector<int32_t> tokens;
  while (!report.reader_gone() && text.Next(tokens)) {
    scorer.Feed(tokens, [&](double logprob) { report.Add(logprob); });
    progress.Update(text.bytes(), StrCat(scorer.tokens(), " tokens, ",
                                         scorer.NatsPerToken(), " nats/token"));
  }
}

int EvalText(const LoadedModel& opened, const EvalFlags& flags) {
  EvalReport report(flags);
  Scorer scorer(opened.model);
  TokenFile text(flags.file, opened.tokenizer, flags.max_tokens, FormOf(flags));
  ScoreFile(text, scorer, report);
  const int signal = PendingSignal();
  if (signal == 0 && scorer.tokens() < 2 && !report.reader_gone()) {
    throw ExitError(kExitBadModel,
                    StrCat(InputName(flags.file),
                           ": want at least 2 tokens, got ", scorer.tokens()));
  }
  // The first token is not scored, nor are its bytes.
  report.Finish(scorer, text.bytes() - text.first_bytes());
  return signal == 0 ? kExitOk : SignalExitCode(signal);
}

// What is measured on images and on pairs; nothing for a language model.
std::optional<int> EvalOthers(const ArgumentParser& parser,
                              const LoadedModel& opened,
                              const EvalFlags& flags) {
  const auto refuse = [&](const char* name) {
    if (!parser.Has(name)) return;
    throw ExitError(kExitUsage,
                    StrCat(name, ": not an option of arch '",
                           Name(opened.model.config().arch), "', task '",
                           Name(opened.model.config().task), "'"));
  };
  if (opened.model.config().task == Task::kImage) {
    for (const char* name :
         {"--per-token", "--by-position", "--max-tokens", "--records",
          "--batch", "--beam", "--text-column", "--label-column"}) {
      refuse(name);
    }
    EvalImageFlags images = flags.images;
    images.images.path = flags.file;
    images.json = flags.json;
    return EvalImages(opened, images);
  }
  for (const char* name : {"--index", "--pool", "--pixels", "--per-image"}) {
    refuse(name);
  }
  const PairFlags pairs = {flags.file, flags.batch, flags.beam, flags.json,
                           flags.columns};
  const Arch arch = opened.model.config().arch;
  if (arch != Arch::kSeq2seq) refuse("--beam");
  if (arch == Arch::kDecoder) {
    for (const char* name : {"--batch", "--text-column", "--label-column"}) {
      refuse(name);
    }
    return std::nullopt;
  }
  refuse("--per-token");
  refuse("--by-position");
  refuse("--max-tokens");
  refuse("--records");
  return arch == Arch::kEncoder ? EvalClassifier(opened, pairs)
                                : EvalTargets(opened, pairs);
}

}  // namespace

int Eval(int argc, char** argv) {
  EvalFlags flags;
  ArgumentParser parser("Measures how well a model does on a file.",
                        "tarn eval");
  Declare(parser, flags);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  const LoadedModel opened = OpenModelPath(flags.dir, flags.model.Options());
  if (const auto code = EvalOthers(parser, opened, flags)) return *code;
  if (!flags.by_position) return EvalText(opened, flags);
  return EvalByPosition(opened, {flags.file, flags.max_tokens, flags.near,
                                 flags.steps, flags.json, FormOf(flags)});
}

}  // namespace tarn::cli
