#include "cli/eval/position.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numbers>
#include <optional>
#include <span>
#include <vector>

#include "cli/console/output.h"
#include "cli/console/signals.h"
#include "cli/console/token_file.h"
#include "cli/eval/position_figures.h"
#include "cli/eval/run.h"
#include "core/text.h"

namespace tarn::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Memory {
  int64_t position = 0, state_bytes = 0, resident_bytes = 0;
};

Memory MemoryNow(const State& state) {
  return {state.position(), state.bytes(), ResidentBytes()};
}

class Stream {
 public:
  Stream(const LoadedModel& opened, const PositionFlags& flags)
      : model_(opened.model),
        flags_(flags),
        text_(flags.file, opened.tokenizer, flags.max_tokens, flags.form),
        scorer_(opened.model, /*windows=*/false) {}

  void Run() {
    Progress progress("eval", flags_.max_tokens > 0
                                  ? static_cast<uint64_t>(flags_.max_tokens)
                                  : text_.size());
    const Clock::time_point begin = Clock::now();
    std::vector<int32_t> tokens;
    while (text_.Next(tokens)) {
      Consume(tokens);
      progress.Update(
          flags_.max_tokens > 0 ? static_cast<uint64_t>(scorer_.tokens())
                                : text_.bytes(),
          StrCat(scorer_.tokens(), " tokens, ",
                 scorer_.NatsPerToken() / std::numbers::ln2, " bits/token"));
    }
    seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
    far_ = MemoryNow(scorer_.state());
    if (flags_.steps > 0 && early_ && !after_.empty()) CompareEnds();
  }

  void Print() const { flags_.json ? PrintJson() : PrintTable(); }
  const Scorer& scorer() const { return scorer_; }

 private:
  void CompareEnds() {
    // Where positions end there may be none left for the steps.
    if (model_.max_tokens() < INT64_MAX) return;
    State late = scorer_.state().Clone();
    const StepComparison found =
        CompareSteps(model_, *early_, late, after_, flags_.steps,
                     [] { return PendingSignal() != 0; });
    if (found.steps > 0) steps_ = found;
  }

  // Feeds a piece, stopping at position `near` to keep the state.
  void Consume(std::span<const int32_t> tokens) {
    const int64_t until_near = flags_.near - scorer_.tokens();
    if (!early_ && until_near <= static_cast<int64_t>(tokens.size())) {
      Feed(tokens.first(static_cast<size_t>(until_near)));
      tokens = tokens.subspan(static_cast<size_t>(until_near));
      early_ = scorer_.state().Clone();
      near_ = MemoryNow(*early_);
    }
    if (early_ && after_.size() < kKept) {
      const size_t count = std::min(kKept - after_.size(), tokens.size());
      after_.insert(after_.end(), tokens.begin(), tokens.begin() + count);
    }
    Feed(tokens);
  }

  void Feed(std::span<const int32_t> tokens) {
    int64_t position = std::max<int64_t>(1, scorer_.tokens());
    scorer_.Feed(tokens,
                 [&](double logprob) { buckets_.Add(position++, -logprob); });
  }

  double BitsPerToken() const {
    return scorer_.NatsPerToken() / std::numbers::ln2;
  }
  double BitsPerByte() const {
    const uint64_t bytes = text_.bytes() - text_.first_bytes();
    return bytes == 0 ? 0
                      : scorer_.nats() / std::numbers::ln2 /
                            static_cast<double>(bytes);
  }
  double TokensPerSecond() const {
    return seconds_ > 0 ? static_cast<double>(scorer_.tokens()) / seconds_ : 0;
  }
  double StepRatio() const {
    return steps_->near.median_us > 0
               ? steps_->far.median_us / steps_->near.median_us
               : 0;
  }
  void PrintJson() const;
  void PrintTable() const;

  static constexpr size_t kKept = 1024;
  const Model& model_;
  const PositionFlags& flags_;
  TokenFile text_;
  Scorer scorer_;
  PositionBuckets buckets_;
  std::optional<State> early_;  // after `near` tokens
  std::vector<int32_t> after_;  // up to kKept tokens that follow there
  Memory near_, far_;
  std::optional<StepComparison> steps_;
  double seconds_ = 0;
};

std::string JsonOf(const Memory& memory) {
  return StrCat("{\"position\":", memory.position,
                ",\"state_bytes\":", memory.state_bytes,
                ",\"resident_bytes\":", memory.resident_bytes, "}");
}

std::string JsonOf(const StepTimes& times) {
  return StrCat("{\"begin\":", times.begin, ",\"end\":", times.end,
                ",\"median_us\":", NumberText(times.median_us), "}");
}

void Stream::PrintJson() const {
  std::string text =
      StrCat("{\"tokens\":", scorer_.tokens(),
             ",\"bits_per_token\":", NumberText(BitsPerToken()),
             ",\"bits_per_byte\":", NumberText(BitsPerByte()),
             ",\"seconds\":", NumberText(seconds_),
             ",\"tokens_per_second\":", NumberText(TokensPerSecond()),
             ",\"threads\":", model_.threads(), ",\"buckets\":[");
  const char* comma = "";
  for (const PositionBucket& row : buckets_.Rows()) {
    text += StrCat(comma, "{\"begin\":", row.begin, ",\"end\":", row.end,
                   ",\"tokens\":", row.tokens,
                   ",\"bits_per_token\":", NumberText(row.bits),
                   ",\"standard_error\":", NumberText(row.standard_error), "}");
    comma = ",";
  }
  text += StrCat(
      "],\"memory\":{\"near\":", early_ ? JsonOf(near_) : std::string("null"),
      ",\"far\":", JsonOf(far_), "},\"steps\":");
  text += steps_ ? StrCat("{\"count\":", steps_->steps,
                          ",\"near\":", JsonOf(steps_->near),
                          ",\"far\":", JsonOf(steps_->far),
                          ",\"ratio\":", NumberText(StepRatio()), "}}\n")
                 : "null}\n";
  Payload payload(stdout);
  payload.Write(text);
  payload.Flush();
}

std::string Line(const char* format, auto... values) {
  char line[160];
  std::snprintf(line, sizeof(line), format, values...);
  return line;
}

void Stream::PrintTable() const {
  Payload payload(stdout);
  payload.Write(StrCat("tokens ", scorer_.tokens(), "\nbits_per_token ",
                       NumberText(BitsPerToken()), "\nbits_per_byte ",
                       NumberText(BitsPerByte()), "\ntokens_per_second ",
                       NumberText(TokensPerSecond()), "\n\n"));
  payload.Write(Line("%12s %12s %12s %12s %10s\n", "from", "to", "tokens",
                     "bits/token", "+-"));
  for (const PositionBucket& row : buckets_.Rows()) {
    payload.Write(Line(
        "%12lld %12lld %12lld %12.4f %10.4f\n",
        static_cast<long long>(row.begin), static_cast<long long>(row.end - 1),
        static_cast<long long>(row.tokens), row.bits, row.standard_error));
  }
  payload.Write(
      Line("\n%12s %12s %12s\n", "position", "state bytes", "resident"));
  for (const Memory& memory : {near_, far_}) {
    if (memory.position == 0) continue;
    payload.Write(Line("%12lld %12lld %12lld\n",
                       static_cast<long long>(memory.position),
                       static_cast<long long>(memory.state_bytes),
                       static_cast<long long>(memory.resident_bytes)));
  }
  if (steps_) {
    payload.Write(Line("\n%12s %12s %12s\n", "from", "to", "us/token"));
    for (const StepTimes& times : {steps_->near, steps_->far}) {
      payload.Write(
          Line("%12lld %12lld %12.3f\n", static_cast<long long>(times.begin),
               static_cast<long long>(times.end - 1), times.median_us));
    }
    payload.Write(StrCat("ratio ", NumberText(StepRatio()), "\n"));
  }
  payload.Flush();
}

}  // namespace

int EvalByPosition(const LoadedModel& opened, const PositionFlags& flags) {
  Stream stream(opened, flags);
  stream.Run();
  const int signal = PendingSignal();
  if (signal == 0 && stream.scorer().tokens() < 2) {
    throw ExitError(kExitBadModel, StrCat(InputName(flags.file),
                                          ": want at least 2 tokens, got ",
                                          stream.scorer().tokens()));
  }
  stream.Print();
  return signal == 0 ? kExitOk : SignalExitCode(signal);
}

}  // namespace tarn::cli
