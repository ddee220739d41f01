// Progress for people: one line that is rewritten on a terminal, a plain line
// now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "train/run/reporter.h"

namespace tarn::train {

/// "47 s", "3 min 07 s", "2 h 05 min".
std::string DurationText(double seconds);

/// Text on one line: line ends as a space and a slash, other bytes that a
/// terminal would act on as '?'.
std::string OneLine(const std::string& text);

/// mean.exchange_s: the share of the time, 0 to 1, that it stands for.
/// "step 120/4000  loss 1.873  2.702 bits/byte  15.2k tokens/s  ETA 3 min
/// 07 s" from figures averaged since the line before.
std::string ProgressLine(const StepFigures& mean, int64_t steps,
                         double seconds_left);

/// Writes to a stream that the caller keeps open. One thread at a time.
class Progress final : public Reporter {
 public:
  /// terminal: whether lines may be rewritten; quiet: print nothing at all.
  Progress(std::FILE* stream, bool terminal, bool quiet);
  /// Clears the line in progress, so that what follows starts clean.
  ~Progress() override;

  void Note(const std::string& line) override;
  void Step(const StepFigures& figures, int64_t steps) override;
  void Sample(const std::string& text) override;
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  void Show(const std::string& line);

  std::FILE* stream_;
  bool terminal_, quiet_;
  bool line_open_ = false;
  Clock::time_point shown_;  // when the last line was written
  int64_t first_step_ = -1;  // of this process
  double first_elapsed_s_ = 0;
  // Sums since the last line.
  int64_t count_ = 0;
  double loss_ = 0, exchange_s_ = 0;
  std::optional<double> bits_, bits_per_dim_, accuracy_;
  int64_t tokens_shown_ = 0;
  double elapsed_shown_ = 0;
};

}  // namespace tarn::train
