// A training run: text or examples in, model directory out.
//
//   OUT/config.json, tokenizer.json, model.safetensors   the last model
//   OUT/labels.json                                      its classes, if any
//   OUT/best/                                            the best model
//   OUT/log.jsonl                                        one line a step
//   OUT/checkpoint/  model.safetensors, optimizer.safetensors, train.json
//
// A step is a pure function of weights, optimiser state and step number: rows
// and dropout come from counters. So a run resumed from a checkpoint is
// bit-identical to one that never stopped.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "train/distributed/sequence.h"
#include "train/options/options.h"
#include "train/run/metrics.h"
#include "train/run/reporter.h"

namespace tarn::train {

struct TrainResult {
  int64_t ranks = 1;
  double exchange_s = 0;  // of elapsed_s, spent on numbers of other ranks
  int64_t step = 0;
  bool finished = false;  // false: stopped by `stop` after a checkpoint
  // Evaluations in a row without a better one that ended it; 0: it ran all
  // steps.
  int64_t out_of_patience = 0;
  double elapsed_s = 0;  // training, over all parts of a resumed run
  Metric metric = Metric::kBitsPerByte;
  std::optional<double> last_held_out, best_held_out;  // in that metric
  int64_t best_step = 0;
  std::string out;
  bool reads_stdin = false;  // the text must be piped in again to resume
};

/// Trains as the options given on a command line say (see options.h). `stop` is
/// read between steps: when set, the run saves itself and returns. Everything
/// that can be known to be wrong is reported before any work: ArgumentError
/// (flags, sizes), FormatError (text, model or checkpoint files), IoError
/// (output). NumericError: the loss is no longer a number; names the step and
/// the last good checkpoint. One run at a time in a process; two processes
/// cannot train into one folder.
///
/// With several ranks every one calls it with the same options. The first reads
/// what there is, writes all files and measures held-out data; the others
/// follow, and need to see the same files. A stop that one was asked for stops
/// all.
TrainResult Train(const Given& given, const std::atomic<bool>& stop,
                  Reporter& reporter, const RunRanks& ranks);
/// A run by itself.
inline TrainResult Train(const Given& given, const std::atomic<bool>& stop,
                         Reporter& reporter) {
  const auto alone = OneRank();
  return Train(given, stop, reporter, {*alone});
}

}  // namespace tarn::train
