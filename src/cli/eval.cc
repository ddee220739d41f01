// `tarn eval`: how well a model does on a file, over the whole of it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/eval_pairs.h"
#include "cli/eval_run.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "cli/signals.h"
#include "runtime/utf8.h"

namespace tarn::cli {
namespace {

struct Flags {
  std::string dir, file;
  std::string weights = "f32";
  int64_t batch = 16, beam = 1;
  int threads = 0;
  bool per_token = false;
  bool json = false;
};

constexpr char kFooter[] =
    "Language models: the whole file is one sequence: each token is predicted "
    "from all before\n"
    "it, the first one is not scored. bits_per_byte counts the bytes of the\n"
    "scored tokens. --per-token adds `logprobs`, natural logarithms, one for\n"
    "each token after the first.\n"
    "Classifiers: lines of \"label TAB text\"; accuracy. Sequence-to-sequence\n"
    "models: lines of \"source TAB target\"; edits a target token and exact\n"
    "matches of the best hypothesis. --batch changes the speed alone.\n\n"
    "Examples:\n"
    "  tarn eval models/demo held-out.txt\n"
    "  tarn eval models/demo - --json < held-out.txt\n"
    "  tarn eval models/demo page.txt --per-token --json | jq .logprobs\n"
    "  tarn eval models/names held-out.tsv --beam 4\n";

void Declare(CLI::App& app, Flags& flags) {
  app.add_option("DIR", flags.dir, "model directory")->required();
  app.add_option("FILE", flags.file, "text; - is standard input")->required();
  app.add_flag("--per-token", flags.per_token,
               "also the log-probability of each token");
  app.add_option("--batch", flags.batch, "pairs run at a time")
      ->check(WholeNumber(1, 4096))
      ->capture_default_str();
  app.add_option("--beam", flags.beam,
                 "sequence-to-sequence: hypotheses kept; 1: greedy")
      ->check(WholeNumber(1, 1024))
      ->capture_default_str();
  DeclareModelFlags(app, flags.threads, flags.weights, flags.json);
  app.footer(kFooter);
}

// Log-probabilities are written as they come, in an array first in the object:
// a file of any size needs no memory for them.
class Report {
 public:
  explicit Report(const Flags& flags) : flags_(flags) {
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
  const Flags& flags_;
  Payload payload_{stdout};
  bool first_ = true;
};

// Bytes of the first token: they are not scored.
uint64_t FirstTokenBytes(const Tokenizer& tokenizer, int32_t token) {
  std::string bytes;
  tokenizer.Decode(token, bytes);
  return bytes.size();
}

class FileScorer {
 public:
  FileScorer(const OpenedModel& opened, const Flags& flags)
      : opened_(opened), flags_(flags), scorer_(opened.model) {}

  // Reads the file to its end, or until a signal or a closed pipe.
  void Run(Report& report) {
    constexpr size_t kPiece = 1 << 16;
    InputFile input(flags_.file);
    Progress progress("eval", input.size());
    std::string held;  // a character cut by the end of a piece
    bool more = true;
    const TokenizerKind kind = opened_.tokenizer.kind();
    if (kind == TokenizerKind::kBpe || kind == TokenizerKind::kWorld) {
      return RunWhole(input, progress, report);
    }
    while (more && PendingSignal() == 0 && !report.reader_gone()) {
      more = input.Read(kPiece, held);
      size_t ready = held.size();
      if (more && kind == TokenizerKind::kChar) {
        ready -= UnfinishedUtf8Tail(held);
      }
      Score(std::string_view(held).substr(0, ready), report);
      held.erase(0, ready);
      progress.Update(bytes_, StrCat(scorer_.tokens(), " tokens, ",
                                     scorer_.NatsPerToken(), " nats/token"));
    }
  }

  const Scorer& scorer() const { return scorer_; }
  uint64_t scored_bytes() const { return bytes_ - first_bytes_; }

 private:
  // Where a token ends can hang on any later byte: the text is read and encoded
  // as a whole, then scored in pieces.
  void RunWhole(InputFile& input, Progress& progress, Report& report) {
    constexpr size_t kMaxBytes = size_t{1} << 30;
    constexpr size_t kTokens = 4096;
    std::string text;
    while (PendingSignal() == 0 && text.size() <= kMaxBytes &&
           input.Read(1 << 20, text)) {
    }
    if (text.size() > kMaxBytes) {
      throw ExitError(kExitBadModel,
                      StrCat(InputName(flags_.file), ": want at most ",
                             kMaxBytes, " bytes, got more"));
    }
    const std::vector<int32_t> tokens = Encode(text);
    if (tokens.empty()) return;
    first_bytes_ = FirstTokenBytes(opened_.tokenizer, tokens.front());
    std::span<const int32_t> rest(tokens);
    std::string piece;
    while (!rest.empty() && PendingSignal() == 0 && !report.reader_gone()) {
      const auto next = rest.first(std::min(kTokens, rest.size()));
      rest = rest.subspan(next.size());
      scorer_.Feed(next, [&](double logprob) { report.Add(logprob); });
      piece.clear();
      for (const int32_t token : next) opened_.tokenizer.Decode(token, piece);
      bytes_ += piece.size();
      progress.Update(bytes_, StrCat(scorer_.tokens(), " tokens, ",
                                     scorer_.NatsPerToken(), " nats/token"));
    }
    // Normalising may have changed their number: the file's bytes count.
    if (rest.empty()) bytes_ = text.size();
  }

  std::vector<int32_t> Encode(std::string_view text) const {
    auto tokens = opened_.tokenizer.Encode(text, bytes_);
    if (!tokens.ok()) {
      throw ExitError(kExitBadModel, StrCat(InputName(flags_.file), ": ",
                                            tokens.error().what()));
    }
    return std::move(tokens).Take();
  }

  void Score(std::string_view text, Report& report) {
    if (text.empty()) return;
    const std::vector<int32_t> tokens = Encode(text);
    if (scorer_.tokens() == 0) {
      first_bytes_ = FirstTokenBytes(opened_.tokenizer, tokens.front());
    }
    bytes_ += text.size();
    scorer_.Feed(tokens, [&](double logprob) { report.Add(logprob); });
  }

  const OpenedModel& opened_;
  const Flags& flags_;
  Scorer scorer_;
  uint64_t bytes_ = 0, first_bytes_ = 0;
};

// What is measured on pairs; nothing for a language model.
std::optional<int> EvalPairs(const CLI::App& app, const OpenedModel& opened,
                             const Flags& flags) {
  const auto refuse = [&](const char* name) {
    if (app.count(name) == 0) return;
    throw ExitError(kExitUsage, StrCat(name, ": not an option of arch '",
                                       Name(opened.model.config().arch), "'"));
  };
  const PairFlags pairs = {flags.file, flags.batch, flags.beam, flags.json};
  const Arch arch = opened.model.config().arch;
  if (arch != Arch::kSeq2seq) refuse("--beam");
  if (arch == Arch::kDecoder) {
    refuse("--batch");
    return std::nullopt;
  }
  refuse("--per-token");
  return arch == Arch::kEncoder ? EvalClassifier(opened, pairs)
                                : EvalTargets(opened, pairs);
}

}  // namespace

int Eval(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measures how well a model does on a file.", "tarn eval");
  Declare(app, flags);
  if (const auto code = ParseArguments(app, argc, argv)) return *code;
  const OpenedModel opened = OpenModelDirectory(
      flags.dir, {WeightTypeFromText(flags.weights), flags.threads, true});
  if (const auto code = EvalPairs(app, opened, flags)) return *code;
  Report report(flags);
  FileScorer file(opened, flags);
  file.Run(report);
  const int signal = PendingSignal();
  if (signal == 0 && file.scorer().tokens() < 2 && !report.reader_gone()) {
    throw ExitError(kExitBadModel, StrCat(InputName(flags.file),
                                          ": want at least 2 tokens, "
                                          "got ",
                                          file.scorer().tokens()));
  }
  report.Finish(file.scorer(), file.scored_bytes());
  return signal == 0 ? kExitOk : SignalExitCode(signal);
}

}  // namespace tarn::cli
