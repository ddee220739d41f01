#include "cli/eval/pairs.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "cli/commands/classify_run.h"
#include "cli/console/output.h"
#include "cli/console/signals.h"
#include "cli/eval/pair_source.h"
#include "cli/generate/target_search.h"
#include "core/text.h"

namespace tarn::cli {
namespace {

// Figures by name, as text or as one JSON object.
class Figures {
 public:
  explicit Figures(bool json) : json_(json) {}
  void Add(const char* name, const std::string& value) {
    text_ += json_ ? StrCat(text_.empty() ? "{" : ",", "\"", name, "\":", value)
                   : StrCat(name, " ", value, "\n");
  }
  void Print() {
    Payload payload(stdout);
    payload.Write(json_ ? text_ + "}\n" : text_);
    payload.Flush();
  }

 private:
  bool json_;
  std::string text_;
};

[[noreturn]] void NoExamples(const std::string& file) {
  throw ExitError(kExitBadModel,
                  StrCat(InputName(file), ": want at least 1 example, got 0"));
}

double Share(int64_t part, int64_t whole) {
  return whole == 0 ? 0
                    : static_cast<double>(part) / static_cast<double>(whole);
}

int ExitCode() {
  const int signal = PendingSignal();
  return signal == 0 ? kExitOk : SignalExitCode(signal);
}

int64_t EditDistance(const std::vector<int32_t>& a,
                     const std::vector<int32_t>& b) {
  // row[j]: distance of the first i tokens of a and the first j of b.
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t replace = diagonal + (a[i] != b[j] ? 1 : 0);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::vector<int32_t> Tokens(const LoadedModel& opened, const std::string& text,
                            const std::string& place) {
  auto tokens = opened.tokenizer.Encode(text);
  if (!tokens.ok()) {
    throw ExitError(kExitBadModel, StrCat(place, ": ", tokens.error().what()));
  }
  return std::move(tokens).Take();
}

// Sources and targets, some at a time.
class TargetScorer {
 public:
  TargetScorer(const LoadedModel& opened, const PairFlags& flags)
      : opened_(opened), flags_(flags) {
    options_.beam = flags.beam;
  }

  void Add(const TextPair& pair, const std::string& place) {
    sources_.push_back(Tokens(opened_, pair.first, place));
    targets_.push_back(Tokens(opened_, pair.second, place));
    if (static_cast<int64_t>(sources_.size()) == flags_.batch) Run();
  }

  void Run() {
    if (sources_.empty()) return;
    // A target more than twice as long as any here is wrong however it ends.
    size_t longest = 0;
    for (const auto& target : targets_) {
      longest = std::max(longest, target.size());
    }
    options_.max_tokens = 2 * static_cast<int64_t>(longest) + 16;
    const auto found = FindTargets(opened_, sources_, options_, times_);
    if (PendingSignal() != 0) return;
    for (size_t i = 0; i < found.size(); ++i) {
      static const std::vector<int32_t> kNothing;
      const std::vector<int32_t>& best =
          found[i].hypotheses.empty() ? kNothing
                                      : found[i].hypotheses.front().tokens;
      edits_ += EditDistance(targets_[i], best);
      tokens_ += static_cast<int64_t>(targets_[i].size());
      exact_ += targets_[i] == best ? 1 : 0;
      ++examples_;
    }
    sources_.clear();
    targets_.clear();
  }

  int64_t examples() const { return examples_; }
  void Print() const {
    Figures figures(flags_.json);
    figures.Add("examples", StrCat(examples_));
    figures.Add("target_tokens", StrCat(tokens_));
    figures.Add("token_error_rate", NumberText(Share(edits_, tokens_)));
    figures.Add("exact_match", NumberText(Share(exact_, examples_)));
    figures.Add("beam", StrCat(flags_.beam));
    figures.Add("seconds",
                NumberText((times_.encode_ms + times_.decode_ms) / 1000));
    figures.Print();
  }

 private:
  const LoadedModel& opened_;
  const PairFlags& flags_;
  TargetOptions options_;
  TargetTimes times_;
  std::vector<std::vector<int32_t>> sources_, targets_;
  int64_t examples_ = 0, tokens_ = 0, edits_ = 0, exact_ = 0;
};

}  // namespace

int EvalClassifier(const LoadedModel& opened, const PairFlags& flags) {
  std::map<std::string, int64_t> classes;
  for (const std::string& label : opened.model.labels()) {
    classes.emplace(label, static_cast<int64_t>(classes.size()));
  }
  std::map<int64_t, int64_t> counts;  // examples of a class
  int64_t examples = 0, right = 0;
  ClassBatch batch(opened);
  std::vector<int64_t> wanted;
  const auto run = [&] {
    const std::vector<ClassScores> scores = batch.Run();
    for (size_t i = 0; i < scores.size(); ++i) {
      right += scores[i].best == wanted[i] ? 1 : 0;
      ++counts[wanted[i]];
      ++examples;
    }
    wanted.clear();
  };
  PairSource source(flags.file, PairKind::kLabelled, flags.columns);
  Progress progress("eval", source.size());
  TextPair pair;
  while (source.Next(pair)) {
    const auto found = classes.find(pair.first);
    if (found == classes.end()) {
      throw ExitError(kExitBadModel, StrCat(source.Place(),
                                            ": want a label of labels.json, "
                                            "got ",
                                            Quoted(pair.first)));
    }
    batch.Add(pair.second, source.Place());
    wanted.push_back(found->second);
    if (batch.size() == flags.batch) run();
    progress.Update(source.done(), StrCat(examples, " examples, accuracy ",
                                          Share(right, examples)));
  }
  run();
  if (examples == 0 && PendingSignal() == 0) NoExamples(flags.file);
  int64_t commonest = 0;
  for (const auto& [label, count] : counts) {
    commonest = std::max(commonest, count);
  }
  Figures figures(flags.json);
  figures.Add("examples", StrCat(examples));
  figures.Add("accuracy", NumberText(Share(right, examples)));
  figures.Add("majority_share", NumberText(Share(commonest, examples)));
  figures.Print();
  return ExitCode();
}

int EvalTargets(const LoadedModel& opened, const PairFlags& flags) {
  TargetScorer scorer(opened, flags);
  PairSource source(flags.file, PairKind::kTarget, flags.columns);
  Progress progress("eval", source.size());
  TextPair pair;
  while (PendingSignal() == 0 && source.Next(pair)) {
    scorer.Add(pair, source.Place());
    progress.Update(source.done(), StrCat(scorer.examples(), " examples"));
  }
  if (PendingSignal() == 0) scorer.Run();
  if (scorer.examples() == 0 && PendingSignal() == 0) NoExamples(flags.file);
  scorer.Print();
  return ExitCode();
}

}  // namespace tarn::cli
