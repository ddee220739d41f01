// `tarn generate`: a prompt in, text out, one token at a time; with a
// sequence-to-sequence model sources in, targets out.
#include "runtime/generate/generate.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/console/input.h"
#include "cli/console/output.h"
#include "cli/console/parse.h"
#include "cli/console/sampling.h"
#include "cli/console/seed.h"
#include "cli/console/signals.h"
#include "cli/generate/grammar_flags.h"
#include "cli/generate/session_run.h"
#include "cli/generate/target.h"
#include "cli/generate/token_times.h"
#include "runtime/generate/generate_session.h"
#include "runtime/session/session_file.h"
#include "text/utf8.h"

namespace tarn::cli {
namespace {

struct GenerateFlags {
  std::string dir, prompt;
  ModelFlags model;
  int64_t max_tokens = kDefaultTokens;
  SamplingLists sampling;
  GenerateOptions generate;
  TargetOptions target;
  GrammarFlags grammar;
  std::string load, save, speculate = kNoGuesses;
  int64_t seed = -1;
  bool ignore_eos = false, json = false;
};

constexpr char kGenerateFooter[] =
    "Only the generated text goes to stdout; statistics go to stderr.\n"
    "An empty prompt starts from a newline, or from the token that a "
    "published\n"
    "model's texts begin with. The same seed gives the same text on any "
    "number\n"
    "of threads. Published models: generation_config.json gives the tokens "
    "that\n"
    "end a text, and the options of sampling that are not given here.\n\n"
    "With --load the prompt follows what the session holds, and may be empty; "
    "its\n"
    "text goes on with its seed where --seed is not given. With --save a run "
    "that\n"
    "is interrupted is saved, too.\n\n"
    "--speculate does not change the text: draft tokens that the model accepts "
    "are\n"
    "read in one pass, others are dropped. It pays where a text repeats "
    "itself,\n"
    "as code and JSON do, or where a draft model is much smaller. mtp needs a "
    "model\n"
    "with an extra head for multi-token prediction, as Qwen3.5 has.\n\n"
    "A sequence-to-sequence model writes one target for each line of the "
    "prompt:\n"
    "greedily, the likeliest token each time, or with --beam N the best of N\n"
    "hypotheses by log probability / length^penalty. It takes no sampling "
    "options.\n\n"
    "`tarn draw` draws images.\n\n"
    "Examples:\n"
    "  tarn generate models/demo --prompt 'Once upon a time'\n"
    "  tarn generate models/demo --prompt - --max-tokens 64 < start.txt\n"
    "  tarn generate models/demo --temperature 0 --json | jq .text\n"
    "  tarn generate models/demo --prompt 'Q: Why? A:' --stop 'Q:'\n"
    "  tarn generate models/demo --prompt 'Call ' --regex '[0-9]{3}-[0-9]{4}'\n"
    "  tarn generate models/demo --prompt 'Once' --save a.session\n"
    "  tarn generate models/demo --load a.session --save a.session\n"
    "  tarn generate models/demo --prompt - --speculate ngram < code.txt\n"
    "  tarn generate models/names-linear --prompt katharopoulos --beam 4\n"
    "  tarn generate models/names-linear --prompt - --json < names.txt\n";

void Declare(ArgumentParser& parser, GenerateFlags& flags) {
  parser.Add("DIR", flags.dir, "model directory or GGUF file").Required();
  parser.Add("--prompt", flags.prompt,
             "text to continue; - reads it from standard input");
  parser
      .Add("--max-tokens", flags.max_tokens,
           "tokens to generate; the default is lower if a model's learned "
           "positions end earlier")
      .Whole(0, INT64_MAX)
      .ShowDefault();
  DeclareSampling(parser, flags.sampling, flags.generate.sampler);
  parser
      .Add("--stop", flags.generate.stop_texts,
           "end the text before this one appears; may be given several times")
      .OneEachTime();
  parser.AddFlag("--ignore-eos", flags.ignore_eos,
                 "do not end at the tokens with which the model's texts end");
  DeclareGrammar(parser, flags.grammar);
  parser.Add("--load", flags.load,
             "session file to continue from; nothing of it is read again");
  parser.Add("--save", flags.save,
             "session file to write after the text, for --load");
  parser
      .Add("--speculate", flags.speculate,
           "draft tokens that are read along: off; ngram (what the text "
           "repeats); mtp (the model's extra prediction head); or "
           "the directory of a small model with the same tokenizer")
      .ShowDefault();
  DeclareSeed(parser, flags.seed);
  parser
      .Add("--beam", flags.target.beam,
           "sequence-to-sequence: hypotheses kept; 1: greedy")
      .Whole(1, 1024)
      .ShowDefault();
  parser
      .Add("--length-penalty", flags.target.length_penalty,
           "sequence-to-sequence: 0 favours short targets")
      .Range(0.0, 100.0)
      .ShowDefault();
  DeclareModelFlags(parser, flags.model, flags.json);
  DeclareCacheFlag(parser, flags.model);
  parser.Footer(kGenerateFooter);
}

std::string ReadPrompt(const std::string& prompt) {
  if (prompt != "-") return prompt;
  constexpr size_t kMaxBytes = size_t{1} << 30;
  InputFile input("-");
  std::string text;
  while (text.size() <= kMaxBytes && input.Read(1 << 16, text)) {
  }
  if (text.size() > kMaxBytes) {
    throw ExitError(kExitUsage, StrCat("--prompt -: want at most ", kMaxBytes,
                                       " bytes on standard input, got more"));
  }
  return text;
}

double PerSecond(int64_t count, double milliseconds) {
  return milliseconds > 0 ? 1000 * static_cast<double>(count) / milliseconds
                          : 0;
}

// A run as it is reported.
struct GenerateReport {
  GenerateResult run;
  TokenTimes times;
  int64_t state_bytes_start = 0, state_bytes_end = 0;
  uint64_t seed = 0;
  // Of the session that was loaded, none of which is read again.
  std::optional<int64_t> loaded_tokens = std::nullopt;
  std::optional<SpeculationCounts> drafts = std::nullopt;
};

void PrintReport(const GenerateReport& report) {
  const GenerateResult& run = report.run;
  if (report.loaded_tokens) {
    std::fprintf(stderr, "session      %lld tokens loaded, 0 read again\n",
                 static_cast<long long>(*report.loaded_tokens));
  }
  std::fprintf(stderr,
               "prompt       %lld tokens, %.1f ms, %.1f tokens/s\n"
               "first token  %.1f ms\n"
               "generated    %lld tokens, %.1f ms, %.1f tokens/s\n"
               "latency      %.1f us/token at the start, %.1f at the end "
               "(medians)\n"
               "state        %lld bytes at start, %lld bytes at end\n"
               "seed         %llu\n",
               static_cast<long long>(run.prompt_tokens), run.prefill_ms,
               PerSecond(run.prompt_tokens, run.prefill_ms), run.first_token_ms,
               static_cast<long long>(run.tokens), run.decode_ms,
               PerSecond(run.tokens, run.decode_ms), report.times.MedianFirst(),
               report.times.MedianLast(),
               static_cast<long long>(report.state_bytes_start),
               static_cast<long long>(report.state_bytes_end),
               static_cast<unsigned long long>(report.seed));
  if (report.drafts) {
    std::fprintf(stderr, "drafts       %lld tokens drafted, %lld accepted\n",
                 static_cast<long long>(report.drafts->drafted),
                 static_cast<long long>(report.drafts->accepted));
  }
}

const char* FinishReason(const GenerateResult& run) {
  switch (run.end) {
    case SequenceEnd::kBudget:
      return "length";
    case SequenceEnd::kStopToken:
    case SequenceEnd::kStopText:
    case SequenceEnd::kGrammar:
      return "stop";
    default:
      return "cancelled";
  }
}

std::string JsonText(const GenerateReport& report, const std::string& text) {
  const GenerateResult& run = report.run;
  nlohmann::ordered_json root;
  root["text"] = ReplaceInvalidUtf8(text);
  root["prompt_tokens"] = run.prompt_tokens;
  root["tokens"] = run.tokens;
  root["prefill_ms"] = run.prefill_ms;
  root["first_token_ms"] = run.first_token_ms;
  root["decode_ms"] = run.decode_ms;
  root["tokens_per_s"] = PerSecond(run.tokens, run.decode_ms);
  root["decode_us_first"] = report.times.MedianFirst();
  root["decode_us_last"] = report.times.MedianLast();
  root["state_bytes"] = report.state_bytes_end;
  root["seed"] = report.seed;
  root["finish_reason"] = FinishReason(run);
  if (report.loaded_tokens) {
    root["loaded_tokens"] = *report.loaded_tokens;
    root["read_again"] = 0;
  }
  if (report.drafts) {
    root["drafted_tokens"] = report.drafts->drafted;
    root["accepted_tokens"] = report.drafts->accepted;
  }
  return root.dump() + "\n";
}

const std::vector<std::string> kTargetOptions = {"--beam", "--length-penalty"};

// Refuses options that mean nothing to the model, rather than ignoring them.
void RefuseOptions(const ArgumentParser& parser,
                   const std::vector<std::string>& names, const char* model) {
  for (const std::string& name : names) {
    if (!parser.Has(name)) continue;
    throw ExitError(kExitUsage, StrCat(name, ": not an option of ", model));
  }
}

// An empty name would be no session.
void CheckSessionPaths(const ArgumentParser& parser,
                       const GenerateFlags& flags) {
  if (parser.Has("--load") && flags.load.empty()) {
    throw ExitError(kExitUsage, "--load: want a file, got \"\"");
  }
  if (parser.Has("--save") && flags.save.empty()) {
    throw ExitError(kExitUsage, "--save: want a file, got \"\"");
  }
}

int GenerateText(const LoadedModel& opened, GenerateFlags& flags);

}  // namespace

int Generate(int argc, char** argv) {
  GenerateFlags flags;
  ArgumentParser parser("Writes text with a model, token by token.",
                        "tarn generate");
  Declare(parser, flags);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  FinishSampling(parser, flags.sampling, flags.generate.sampler);
  const StopTexts checked(flags.generate.stop_texts);
  const LoadedModel opened = OpenModelPath(flags.dir, flags.model.Options());
  const ModelConfig& config = opened.model.config();
  if (config.task == Task::kImage) {
    throw ExitError(kExitBadModel,
                    StrCat(flags.dir,
                           ": want a model that writes text, got an image "
                           "model (see `tarn draw`)"));
  }
  switch (config.arch) {
    case Arch::kEncoder:
      throw ExitError(kExitBadModel,
                      StrCat(flags.dir,
                             ": want a model that writes text, got "
                             "a classifier (see `tarn classify`)"));
    case Arch::kSeq2seq:
      RefuseOptions(parser, SamplingFlags(), "a sequence-to-sequence model");
      RefuseOptions(
          parser,
          {"--stop", "--ignore-eos", "--seed", "--grammar", "--json-schema",
           "--regex", "--load", "--save", "--speculate"},
          "a sequence-to-sequence model");
      flags.target.max_tokens = flags.max_tokens;
      return GenerateTargets(opened, flags.prompt, flags.target, flags.json);
    default:
      RefuseOptions(parser, kTargetOptions, "a language model");
      if (parser.Has("--max-tokens")) {
        flags.generate.max_tokens = flags.max_tokens;
      }
      UseDefaultSampling(parser, opened.defaults, flags.generate.sampler);
      if (!flags.ignore_eos) {
        flags.generate.stop_tokens = opened.defaults.stop_tokens;
      }
      flags.generate.constraint = ReadGrammar(
          parser, flags.grammar, opened.tokenizer, flags.generate.stop_tokens);
      CheckSessionPaths(parser, flags);
      return GenerateText(opened, flags);
  }
}

namespace {

int GenerateText(const LoadedModel& opened, GenerateFlags& flags) {
  const Drafts drafts =
      OpenDrafts(flags.speculate, opened, flags.model.Options());
  std::optional<Session> session;
  if (!flags.load.empty() || !flags.save.empty() || !drafts.none()) {
    session.emplace(OpenSession(opened, flags.load));
    session->Speculate(drafts.Make());
  }
  EncodeOptions encode;
  encode.add_special =
      !session || (session->position() == 0 && session->pending().empty());
  const auto prompt = opened.tokenizer.Encode(ReadPrompt(flags.prompt), encode);
  if (!prompt.ok()) {
    throw ExitError(kExitUsage, StrCat("--prompt: ", prompt.error().what()));
  }
  GenerateReport report;
  if (!flags.load.empty()) report.loaded_tokens = session->position();
  uint64_t& seed = flags.generate.sampler.seed;
  if (flags.seed < 0 && session && session->text() != nullptr) {
    seed = session->text()->options().sampler.seed;
  } else {
    seed = ChooseSeed(flags.seed);
  }
  report.seed = seed;
  State state(opened.model);
  const State& used = session ? session->state() : state;
  report.state_bytes_start = used.bytes();

  Payload payload(stdout);
  Utf8Stream stream;
  std::string text;  // --json only: a plain run keeps nothing it has written
  const auto sink = [&](const GeneratedToken& token) {
    report.times.Add(1000 * token.ms);
    if (flags.json) {
      text += token.text;
      return true;
    }
    payload.Write(stream.Push(token.text));
    payload.FlushIfDue();
    return !payload.reader_gone();
  };
  const StopCheck stop = [] { return PendingSignal() != 0; };
  report.run =
      session
          ? GenerateWith(*session, prompt.value(), flags.generate, sink, stop)
          : tarn::Generate(opened.model, opened.tokenizer, state,
                           prompt.value(), flags.generate, sink, stop);
  report.state_bytes_end = used.bytes();
  if (!drafts.none()) report.drafts = session->speculation();
  if (flags.json) {
    payload.Write(JsonText(report, text + report.run.held));
  } else {
    payload.Write(stream.Push(report.run.held));
    payload.Write(stream.Finish());
  }
  payload.Flush();
  if (!flags.save.empty()) {
    session->Settle();
    SaveSession(*session, flags.save);
  }
  if (payload.reader_gone()) return kExitOk;
  // Neither figures nor the prompt of a shell should follow the text on its
  // line.
  if (!flags.json && (isatty(STDOUT_FILENO) != 0 || StreamsAreOne())) {
    std::fputc('\n', stderr);
  }
  PrintReport(report);
  const int signal = PendingSignal();
  return signal == 0 ? kExitOk : SignalExitCode(signal);
}

}  // namespace
}  // namespace tarn::cli
