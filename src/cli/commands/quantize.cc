// `tarn quantize`: a model with weights of 8 or 4 bits.
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/commands/conversion.h"
#include "cli/console/output.h"
#include "cli/console/parse.h"
#include "cli/console/signals.h"
#include "cli/console/token_file.h"
#include "cli/eval/run.h"
#include "core/text.h"
#include "runtime/model/files.h"
#include "runtime/quantise/quantise.h"

namespace tarn::cli {
namespace {

constexpr char kQuantizeFooter[] =
    "Weights share a float16 scale in groups of --group numbers of a row; "
    "with\n"
    "4 bits, --minimum adds a float16 minimum. Embeddings and the head of an\n"
    "int4 model get int8; what decides how long a memory lasts (gates, "
    "decays,\n"
    "betas), norms, convolutions and vectors stay as they are. --calibrate\n"
    "reads a text like those that the model is for, and rounds each layer so\n"
    "that its results change least, with the inputs that the rounded layers\n"
    "before it give; it takes 8 tokens for each input of the widest matrix, "
    "and\n"
    "at least 16,384, spread over the text.\n"
    "--keep stores the matrices that match a pattern in another way (names as\n"
    "in docs/models.md; the last that matches counts). --check prints the "
    "bits\n"
    "per byte of both models on a text. Weights are read and written a few "
    "MiB\n"
    "at a time; all files appear at the end, by rename, and the same command\n"
    "continues a run that was interrupted.\n\n"
    "Examples:\n"
    "  tarn quantize models/demo --out models/demo-int8 --weights int8\n"
    "  tarn quantize models/mine --out mine-int4 --weights int4 \\\n"
    "      --calibrate text.txt --check held-out.txt\n"
    "  tarn quantize models/mine --out mixed --weights int4 \\\n"
    "      --keep '*.out_projection.weight=int8' --keep 'predictor*=stored'\n";

struct QuantizeFlags {
  std::string from, out, weights = "int8";
  int64_t group = 0;
  bool minimum = false, overwrite = false;
  std::string calibrate, check;
  std::vector<std::string> keep;
  int threads = 0;
};

void Declare(ArgumentParser& parser, QuantizeFlags& flags) {
  parser.Add("DIR", flags.from, "model directory, tarn's own or published")
      .Required();
  parser.Add("--out", flags.out, "folder to write, made if it is missing")
      .Required();
  parser.Add("--weights", flags.weights, "bits of a weight")
      .OneOf({"int8", "int4"})
      .ShowDefault();
  parser
      .Add("--group", flags.group,
           "weights that share a scale: 32, 64 or 128; 0: 64 with int8, 32 "
           "with int4")
      .OneOf({"0", "32", "64", "128"})
      .ShowDefault();
  parser.AddFlag("--minimum", flags.minimum, "int4: groups have a minimum too");
  parser.Add("--calibrate", flags.calibrate,
             "text for error compensation (- is standard input)");
  parser.Add("--check", flags.check, "text on which both models are measured");
  parser
      .Add("--keep", flags.keep,
           "PATTERN=TYPE: how the matrices with such names are stored: "
           "stored, f32, bf16, int8, int4, int8-32, ...")
      .OneEachTime();
  parser.Add("--threads", flags.threads, "0: as many as there are cores")
      .Whole(0, 1024)
      .ShowDefault();
  parser.AddFlag("--overwrite", flags.overwrite,
                 "replace a model that is in the folder");
  parser.Footer(kQuantizeFooter);
}

GroupScheme SchemeOf(const QuantizeFlags& flags) {
  GroupScheme scheme;
  scheme.bits = flags.weights == "int4" ? 4 : 8;
  scheme.group = flags.group != 0 ? flags.group : scheme.bits == 4 ? 32 : 64;
  scheme.minimum = flags.minimum;
  if (scheme.minimum && scheme.bits == 8) {
    throw ExitError(kExitUsage, "--minimum: only with --weights int4");
  }
  return scheme;
}

std::vector<KeepRule> RulesOf(const QuantizeFlags& flags) {
  std::vector<KeepRule> rules;
  for (const std::string& text : flags.keep) {
    const size_t equals = text.rfind('=');
    if (equals == text.npos || equals == 0) {
      throw ExitError(kExitUsage,
                      StrCat("--keep: want PATTERN=TYPE, got ", Quoted(text)));
    }
    rules.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return rules;
}

// The first tokens of the calibration text.
std::vector<int32_t> TokensOf(const QuantizeFlags& flags,
                              const ModelConfig& config, int64_t most) {
  Result<Tokenizer> tokenizer = OpenTokenizer(flags.from, config);
  if (!tokenizer.ok()) {
    throw ExitError(kExitBadModel, tokenizer.error().what());
  }
  TokenFile text(flags.calibrate, tokenizer.value(), most);
  std::vector<int32_t> all, some;
  while (text.Next(some)) all.insert(all.end(), some.begin(), some.end());
  return all;
}

// Bits per byte of a text.
std::optional<double> Measure(const std::string& dir, const std::string& file,
                              int threads) {
  const LoadedModel opened =
      OpenModelPath(dir, {WeightType::kAuto, threads, true});
  if (opened.model.config().task != Task::kLm) {
    throw ExitError(kExitUsage, "--check: only for language models");
  }
  Scorer scorer(opened.model);
  TokenFile text(file, opened.tokenizer);
  Progress progress("tarn quantize: check", text.size());
  std::vector<int32_t> tokens;
  while (text.Next(tokens)) {
    scorer.Feed(tokens, [](double) {});
    progress.Update(text.bytes(), dir);
  }
  if (PendingSignal() != 0) return std::nullopt;
  const uint64_t bytes = text.bytes() - text.first_bytes();
  if (bytes == 0) {
    throw ExitError(kExitFailure,
                    StrCat(InputName(file), ": want at least 2 tokens, got ",
                           scorer.tokens()));
  }
  return scorer.nats() / std::log(2.0) / static_cast<double>(bytes);
}

std::string Report(const QuantizeFlags& flags, const Quantised& quantised) {
  const Converted& converted = quantised.converted;
  char bits[64];
  std::snprintf(bits, sizeof(bits), "%.2f",
                quantised.rounded_numbers == 0
                    ? 0.0
                    : 8.0 * static_cast<double>(quantised.rounded_bytes) /
                          static_cast<double>(quantised.rounded_numbers));
  std::string text = StrCat(
      flags.out, ": ", flags.weights, ", ", converted.numbers, " weights, ",
      converted.bytes, " bytes; ", quantised.rounded_numbers, " weights of ",
      quantised.rounded, " matrices in groups, ", bits, " bits each\n");
  if (!flags.calibrate.empty()) {
    text += StrCat("calibrated with ", quantised.calibration_tokens,
                   " tokens of ", InputName(flags.calibrate), "\n");
  }
  std::string names;
  for (const std::string& name : converted.files) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return text + names + "\n";
}

}  // namespace

int Quantize(int argc, char** argv) {
  QuantizeFlags flags;
  ArgumentParser parser("Writes a model with weights of 8 or 4 bits.",
                        "tarn quantize");
  Declare(parser, flags);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  QuantiseOptions options;
  options.scheme = SchemeOf(flags);
  options.keep = RulesOf(flags);
  options.threads = flags.threads;
  options.convert.overwrite = flags.overwrite;
  if (!flags.calibrate.empty()) {
    options.text = [&](const ModelConfig& config, int64_t most) {
      return TokensOf(flags, config, most);
    };
  }
  Quantised quantised;
  const auto ended = RunWithProgress(
      "tarn quantize", options.convert, [&](const ConvertOptions& convert) {
        options.convert = convert;
        quantised = QuantiseModel(flags.from, flags.out, options);
        return quantised.converted;
      });
  if (!ended) return SignalExitCode(PendingSignal());
  Payload payload(stdout);
  payload.Write(Report(flags, quantised));
  payload.Flush();
  if (flags.check.empty()) return kExitOk;
  const auto before = Measure(flags.from, flags.check, flags.threads);
  const auto after =
      before ? Measure(flags.out, flags.check, flags.threads) : std::nullopt;
  if (!after) return SignalExitCode(PendingSignal());
  payload.Write(StrCat("bits_per_byte ", NumberText(*before), " before, ",
                       NumberText(*after), " after, difference ",
                       NumberText(*after - *before), "\n"));
  payload.Flush();
  return kExitOk;
}

}  // namespace tarn::cli
