// `tarn classify`: texts in, the names of their classes out.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/commands/classify_run.h"
#include "cli/console/lines.h"
#include "cli/console/output.h"
#include "cli/console/parse.h"
#include "cli/console/signals.h"

namespace tarn::cli {
namespace {

struct ClassifyFlags {
  std::string dir, file = "-";
  ModelFlags model;
  int64_t batch = 16;
  bool json = false;
};

constexpr char kClassifyFooter[] =
    "Each line is one text; stdout gets one label per line, in order. An "
    "empty\n"
    "line is an error. --json prints one object per line, with the "
    "probability\n"
    "of every class. --batch lines run at a time, which is faster and does "
    "not\n"
    "change the results.\n\n"
    "Examples:\n"
    "  tarn classify models/reviews reviews.txt\n"
    "  echo 'x29n47]0]' | tarn classify models/listops-linear\n"
    "  tarn classify models/reviews - --json < reviews.txt | jq .label\n";

void Declare(ArgumentParser& parser, ClassifyFlags& flags) {
  parser.Add("DIR", flags.dir, "model directory of a classifier").Required();
  parser.Add("FILE", flags.file, "one text per line; - is standard input")
      .ShowDefault();
  parser.Add("--batch", flags.batch, "lines run at a time")
      .Whole(1, 4096)
      .ShowDefault();
  DeclareModelFlags(parser, flags.model, flags.json);
  parser.Footer(kClassifyFooter);
}

std::string JsonLine(const ClassScores& scores,
                     const std::vector<std::string>& labels) {
  nlohmann::ordered_json root, probabilities;
  for (size_t i = 0; i < labels.size(); ++i) {
    probabilities[labels[i]] = scores.probabilities[i];
  }
  root["label"] = labels[static_cast<size_t>(scores.best)];
  root["probability"] = scores.probabilities[static_cast<size_t>(scores.best)];
  root["probabilities"] = probabilities;
  return root.dump() + "\n";
}

}  // namespace

int Classify(int argc, char** argv) {
  ClassifyFlags flags;
  ArgumentParser parser(
      "Classifies texts with the classes a model was trained on.",
      "tarn classify");
  Declare(parser, flags);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  const LoadedModel opened = OpenModelPath(flags.dir, flags.model.Options());
  if (opened.model.config().arch != Arch::kEncoder) {
    throw ExitError(kExitBadModel,
                    StrCat(flags.dir,
                           ": want a classifier (arch 'encoder'), "
                           "got arch '",
                           Name(opened.model.config().arch), "'"));
  }
  const std::vector<std::string>& labels = opened.model.labels();
  LineReader lines(flags.file);
  Payload payload(stdout);
  ClassBatch batch(opened);
  std::string line;
  bool more = true;
  while (more && !payload.reader_gone()) {
    more = lines.Next(line);
    if (more) batch.Add(line, lines.Place());
    // Texts read before a signal are still answered.
    if (more && batch.size() < flags.batch) continue;
    for (const ClassScores& scores : batch.Run()) {
      payload.Write(flags.json
                        ? JsonLine(scores, labels)
                        : labels[static_cast<size_t>(scores.best)] + "\n");
    }
    payload.FlushIfDue();
  }
  payload.Flush();
  const int signal = PendingSignal();
  return signal == 0 ? kExitOk : SignalExitCode(signal);
}

}  // namespace tarn::cli
