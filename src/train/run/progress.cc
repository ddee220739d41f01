#include "train/run/progress.h"

#include <cmath>

#include "core/error.h"

namespace tarn::train {
namespace {

constexpr std::chrono::milliseconds kTerminalPause{100};
constexpr std::chrono::seconds kPlainPause{10};
constexpr char kClearLine[] = "\r\x1b[K";

std::string Format(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

// Adds the figure of an update to the sum since the last line.
void Add(std::optional<double>& sum, const std::optional<double>& value) {
  if (value) sum = sum.value_or(0) + *value;
}

// The sum as a mean; none where nothing was added.
std::optional<double> Mean(const std::optional<double>& sum, int64_t count) {
  if (!sum) return sum;
  return *sum / static_cast<double>(count);
}

// "  held out 2.1234 bits/byte", with every figure that was measured.
std::string HeldOutText(const StepFigures& figures) {
  std::string text = "  held out";
  if (figures.val_bits_per_byte) {
    return text + Format(" %.4f bits/byte", *figures.val_bits_per_byte);
  }
  if (figures.val_bits_per_dim) {
    return text + Format(" %.4f bits/dim", *figures.val_bits_per_dim);
  }
  text += Format(" loss %.4f", *figures.val_loss);
  if (figures.val_accuracy) {
    text += Format(", accuracy %.2f %%", 100 * *figures.val_accuracy);
  }
  if (figures.val_token_error_rate) {
    text +=
        Format(", token error %.2f %%", 100 * *figures.val_token_error_rate);
  }
  if (figures.test_token_error_rate) {
    text += Format(" (test %.2f %%)", 100 * *figures.test_token_error_rate);
  }
  return text;
}

}  // namespace

std::string DurationText(double seconds) {
  // Before the first two steps there is nothing to estimate from.
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  char buffer[64];
  if (whole < 60) {
    std::snprintf(buffer, sizeof buffer, "%d s", static_cast<int>(whole));
  } else if (whole < 3600) {
    std::snprintf(buffer, sizeof buffer, "%d min %02d s",
                  static_cast<int>(whole / 60), static_cast<int>(whole % 60));
  } else {
    std::snprintf(buffer, sizeof buffer, "%lld h %02d min",
                  static_cast<long long>(whole / 3600),
                  static_cast<int>(whole / 60 % 60));
  }
  return buffer;
}

std::string OneLine(const std::string& text) {
  std::string line;
  // Bytes above 0x7F pass: they are mostly UTF-8.
  for (const char c : text) {
    if (c == '\n') {
      line += " /";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      line += c == '\t' ? ' ' : '?';
    } else {
      line += c;
    }
  }
  return line;
}

std::string ProgressLine(const StepFigures& mean, int64_t steps,
                         double seconds_left) {
  const double rate = mean.tokens_per_s;
  std::string line = StrCat("step ", mean.step, "/", steps);
  line += Format("  loss %.3f", mean.loss);
  if (mean.bits_per_byte)
    line += Format("  %.3f bits/byte", *mean.bits_per_byte);
  if (mean.bits_per_dim) {
    line += Format("  %.3f bits/dim", *mean.bits_per_dim);
  }
  if (mean.accuracy) line += Format("  accuracy %.1f %%", 100 * *mean.accuracy);
  line += rate >= 10000 ? Format("  %.1fk tokens/s", rate / 1000)
                        : Format("  %.0f tokens/s", rate);
  if (mean.ranks > 1) {
    line += Format(" (%.0f a rank)", rate / static_cast<double>(mean.ranks));
    line += Format("  exchange %.0f %%", 100 * mean.exchange_s);
  }
  return line + "  ETA " + DurationText(seconds_left);
}

Progress::Progress(std::FILE* stream, bool terminal, bool quiet)
    : stream_(stream),
      terminal_(terminal),
      quiet_(quiet),
      shown_(Clock::now()) {}

Progress::~Progress() { Clear(); }

void Progress::Clear() {
  if (line_open_) std::fputs(kClearLine, stream_);
  line_open_ = false;
  std::fflush(stream_);
}

void Progress::Note(const std::string& line) {
  if (quiet_) return;
  Clear();
  std::fprintf(stream_, "%s\n", line.c_str());
  std::fflush(stream_);
}

void Progress::Show(const std::string& line) {
  if (terminal_) {
    std::fprintf(stream_, "%s%s", kClearLine, line.c_str());
    line_open_ = true;
  } else {
    std::fprintf(stream_, "%s\n", line.c_str());
  }
  std::fflush(stream_);
}

void Progress::Step(const StepFigures& figures, int64_t steps) {
  if (quiet_) return;
  if (first_step_ < 0) {
    first_step_ = figures.step;
    first_elapsed_s_ = elapsed_shown_ = figures.elapsed_s;
    tokens_shown_ = figures.tokens;
  }
  ++count_;
  loss_ += figures.loss;
  exchange_s_ += figures.exchange_s;
  Add(bits_, figures.bits_per_byte);
  Add(bits_per_dim_, figures.bits_per_dim);
  Add(accuracy_, figures.accuracy);
  const auto now = Clock::now();
  const bool due = now - shown_ >= (terminal_ ? Clock::duration(kTerminalPause)
                                              : Clock::duration(kPlainPause));
  // An evaluation on held-out text is always reported and stays on the screen.
  if (due || figures.val_loss) {
    StepFigures mean = figures;
    mean.loss = loss_ / static_cast<double>(count_);
    mean.bits_per_byte = Mean(bits_, count_);
    mean.bits_per_dim = Mean(bits_per_dim_, count_);
    mean.accuracy = Mean(accuracy_, count_);
    const double pause = figures.elapsed_s - elapsed_shown_;
    if (pause > 0) {
      mean.tokens_per_s =
          static_cast<double>(figures.tokens - tokens_shown_) / pause;
      mean.exchange_s = exchange_s_ / pause;
    }
    // ETA from this process's own speed, evaluations on held-out text included.
    const double done = static_cast<double>(figures.step - first_step_);
    const double left = done > 0
                            ? (figures.elapsed_s - first_elapsed_s_) / done *
                                  static_cast<double>(steps - figures.step)
                            : NAN;
    const std::string line = ProgressLine(mean, steps, left);
    if (figures.val_loss) {
      Note(line + HeldOutText(figures));
    } else {
      Show(line);
    }
    shown_ = now;
    count_ = 0;
    loss_ = exchange_s_ = 0;
    bits_.reset();
    bits_per_dim_.reset();
    accuracy_.reset();
    tokens_shown_ = figures.tokens;
    elapsed_shown_ = figures.elapsed_s;
  }
}

void Progress::Sample(const std::string& text) {
  Note("  sample: " + OneLine(text));
}

}  // namespace tarn::train
