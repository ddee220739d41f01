#include "train/train_program.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/error.h"
#include "core/file.h"
#include "kernels/simd_target.h"
#include "train/options/command_line.h"
#include "train/run/before_start.h"
#include "train/run/failure.h"
#include "train/run/progress.h"
#include "train/trainer.h"

namespace tarn::train {
namespace {

std::atomic<bool> stop_asked{false};
volatile sig_atomic_t stop_signal = 0;
static_assert(std::atomic<bool>::is_always_lock_free);

// The first signal asks for an orderly stop; the second, with the handler
// gone, ends the process as usual.
void AskStop(int number) {
  stop_signal = number;
  stop_asked = true;
}

// The one that asked; another rank may have been asked instead.
int StopSignal() { return stop_signal != 0 ? stop_signal : SIGINT; }

void HandleSignals() {
  struct sigaction action = {};
  action.sa_handler = AskStop;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A full disk or a closed pipe gives an error code, not the end of the run.
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
}

// A step frees what the next one allocates. By default the C library gives such
// memory back in between, and its pages are mapped and cleared again.
void KeepFreedMemory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that it takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

// The text for a POSIX shell: in single quotes unless plainly harmless.
std::string ShellWord(const std::string& text) {
  const char* plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-+";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) {
    return text;
  }
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// A reader that is gone is no error: the run is saved.
void Print(const std::string& text) {
  WriteStream(STDOUT_FILENO, text, "standard output");
}

template <typename... Values>
std::string Line(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

void PrintFigures(const TrainResult& result) {
  std::string text =
      Line("training time %s (%.1f s), %lld steps\n",
           DurationText(result.elapsed_s).c_str(), result.elapsed_s,
           static_cast<long long>(result.step));
  if (result.out_of_patience > 0) {
    text +=
        StrCat("stopped early: ", result.out_of_patience,
               " evaluations in a row (--patience) were not better than ",
               MetricText(result.metric, *result.best_held_out), " at step ",
               result.best_step, ", the model in ", result.out, "/best\n");
  }
  if (result.last_held_out) {
    const auto metric = [&](double value) {
      return MetricText(result.metric, value);
    };
    text += Line("held out %s (best %s at step %lld)\n",
                 metric(*result.last_held_out).c_str(),
                 metric(*result.best_held_out).c_str(),
                 static_cast<long long>(result.best_step));
  }
  if (result.ranks > 1) {
    text += Line("%lld ranks, %.1f s (%.0f %%) in exchange\n",
                 static_cast<long long>(result.ranks), result.exchange_s,
                 100 * result.exchange_s / std::max(result.elapsed_s, 1e-9));
  }
  Print(StrCat(text, "model in ", result.out, "\n"));
}

// What ranks other than the first report, in a file each. It is opened at the
// first line: the run is planned then, and the folder there.
class RankReport final : public Reporter {
 public:
  RankReport(const Given& given, int64_t rank) : rank_(rank) {
    for (const auto& [name, value] : given) {
      if (name == "out") folder_ = value + "/ranks";
    }
  }
  void Note(const std::string& line) override {
    if (Progress* progress = Opened()) progress->Note(line);
  }
  void Step(const StepFigures& figures, int64_t steps) override {
    if (Progress* progress = Opened()) progress->Step(figures, steps);
  }
  void Sample(const std::string& text) override {
    if (Progress* progress = Opened()) progress->Sample(text);
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  // Null where the file cannot be written: a report is not worth a run.
  Progress* Opened() {
    if (!tried_) {
      tried_ = true;
      std::error_code error;
      std::filesystem::create_directories(folder_, error);
      const std::string path = StrCat(folder_, "/rank-", rank_, ".log");
      file_.reset(std::fopen(path.c_str(), "a"));
      if (file_) progress_.emplace(file_.get(), false, false);
    }
    return progress_ ? &*progress_ : nullptr;
  }

  int64_t rank_;
  std::string folder_;
  bool tried_ = false;
  std::unique_ptr<std::FILE, Close> file_;  // outlives progress_
  std::optional<Progress> progress_;
};

std::string ResumeFlags(const Given& given, const TrainResult& result) {
  std::string flags;
  if (result.ranks > 1) flags += StrCat(" --ranks ", result.ranks);
  for (const auto& [name, value] : given) {
    if (name == "shard_optimizer") flags += " --shard-optimizer";
    if (name == "sequence_parallel") flags += " --sequence-parallel " + value;
  }
  return flags;
}

int RunProgram(const std::vector<std::string>& arguments,
               const RunRanks& run_ranks) {
  const Ranks& ranks = run_ranks.all;
  const CommandLine line = ParseCommandLine(arguments);
  if (line.help) {
    if (ranks.is_first()) Print(HelpText("tarn train"));
    return 0;
  }
  ApplySimdTargetFromEnvironment();
  bool quiet = false;
  for (const auto& [name, value] : line.given) quiet |= name == "quiet";
  if (!ranks.is_first()) {
    RankReport report(line.given, ranks.rank());
    const TrainResult result = Train(line.given, stop_asked, report, run_ranks);
    return result.finished ? 0 : 128 + StopSignal();
  }
  if (ranks.size() == 1) ReadRanks(line.given);
  Progress progress(stderr, isatty(STDERR_FILENO) == 1, quiet);
  const TrainResult result = Train(line.given, stop_asked, progress, run_ranks);
  progress.Clear();
  if (result.finished) {
    PrintFigures(result);
    return 0;
  }
  std::fprintf(stderr,
               "stopped after step %lld, saved; continue with: "
               "tarn train --out %s --resume%s%s\n",
               static_cast<long long>(result.step),
               ShellWord(result.out).c_str(),
               ResumeFlags(line.given, result).c_str(),
               result.reads_stdin ? " < THE SAME TEXT" : "");
  return 128 + StopSignal();
}

}  // namespace

int TrainProgram(const std::vector<std::string>& arguments,
                 const std::function<std::unique_ptr<Ranks>()>& make_ranks,
                 const std::function<std::unique_ptr<Ranks>()>& make_sequence) {
  KeepFreedMemory();
  HandleSignals();
  try {
    const std::unique_ptr<Ranks> ranks = make_ranks();
    const std::unique_ptr<Ranks> sequence =
        make_sequence ? make_sequence() : nullptr;
    if (sequence == nullptr) return RunProgram(arguments, {*ranks});
    const RankedSequence pieces(*sequence);
    return RunProgram(arguments, {*ranks, &pieces});
  } catch (const std::exception&) {
    return ReportFailure(std::current_exception());
  }
}

}  // namespace tarn::train
