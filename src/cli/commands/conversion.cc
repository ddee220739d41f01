#include "cli/commands/conversion.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "cli/cli.h"
#include "cli/console/output.h"
#include "cli/console/signals.h"
#include "core/text.h"

namespace tarn::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMiB = 1 << 20;

StoredWeights StoredOf(const std::string& word) {
  if (word == "f32") return StoredWeights::kF32;
  return word == "bf16" ? StoredWeights::kBF16 : StoredWeights::kAsTheyAre;
}

// "312 of 2048 MiB"
std::string Amount(uint64_t done, uint64_t total) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.0f of %.0f MiB",
                static_cast<double>(done) / kMiB,
                static_cast<double>(total) / kMiB);
  return text;
}

// "312 of 2048 MiB, 540 MiB/s, 3 s left"; first: where this run began.
std::string Note(uint64_t first, uint64_t done, uint64_t total,
                 double seconds) {
  const double rate =
      static_cast<double>(done - first) / std::max(seconds, 1e-3);
  const double left = static_cast<double>(total - done) / std::max(rate, 1.0);
  char text[64];
  std::snprintf(text, sizeof(text), ", %.0f MiB/s, %.0f s left", rate / kMiB,
                left);
  return Amount(done, total) + text;
}

}  // namespace

void DeclareConversion(ArgumentParser& parser, const std::string& source,
                       const std::string& output, ConversionFlags& flags) {
  parser.Add("DIR", flags.from, source).Required();
  parser.Add("--out", flags.out, output).Required();
  parser
      .Add("--weights", flags.weights,
           "how matrices are written: as they are stored, or in this format; "
           "vectors stay as they are")
      .OneOf({"stored", "f32", "bf16"})
      .ShowDefault();
  parser.AddFlag("--overwrite", flags.overwrite,
                 "replace a model that is in the folder");
}

std::optional<Converted> RunWithProgress(
    const std::string& label, ConvertOptions options,
    const std::function<Converted(const ConvertOptions&)>& run) {
  options.build = StrCat("tarn ", TARN_VERSION);
  uint64_t first = 0, last = 0, all = 0;
  bool begun = false;
  try {
    Progress progress(label, 100);
    const auto start = Clock::now();
    options.progress = [&](uint64_t done, uint64_t total) {
      if (!begun) first = done;
      if (!std::exchange(begun, true) && first > 0) {
        std::fprintf(stderr, "%s: continues after %s\n", label.c_str(),
                     Amount(first, total).c_str());
      }
      last = done;
      all = total;
      const std::chrono::duration<double> passed = Clock::now() - start;
      progress.Update(total == 0 ? 100 : 100 * done / total,
                      Note(first, done, total, passed.count()));
      return PendingSignal() == 0;
    };
    return run(options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    std::fprintf(stderr,
                 "%s: interrupted after %s; the same command continues\n",
                 label.c_str(), Amount(last, all).c_str());
    return std::nullopt;
  }
}

int RunConversion(const std::string& label, const ConversionFlags& flags,
                  const std::function<Converted(const ConvertOptions&)>& run) {
  ConvertOptions options;
  options.stored = StoredOf(flags.weights);
  options.overwrite = flags.overwrite;
  const std::optional<Converted> ended = RunWithProgress(label, options, run);
  if (!ended) return SignalExitCode(PendingSignal());
  const Converted& converted = *ended;
  if (!converted.left_out.empty()) {
    std::fprintf(stderr, "%s: left out %s\n", label.c_str(),
                 converted.left_out.c_str());
  }
  std::string names;
  for (const std::string& name : converted.files) {
    names += (names.empty() ? "" : ", ") + name;
  }
  Payload payload(stdout);
  payload.Write(StrCat(flags.out, ": ", converted.model_type, ", ",
                       converted.tensors, " tensors, ", converted.numbers,
                       " weights, ", converted.bytes, " bytes\n", names, "\n"));
  payload.Flush();
  return kExitOk;
}

}  // namespace tarn::cli
