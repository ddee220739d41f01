// The JSON-lines log of a run: one object a step, in OUT/log.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/file.h"

namespace tarn::train {

/// What is known after an update. Losses are means in nats per token.
struct StepFigures {
  int64_t step = 0;                    // updates made
  double loss = 0, bits_per_byte = 0;  // of the training rows of this update
  std::optional<double> val_loss, val_bits_per_byte;  // where it was measured
  double lr = 0;
  double grad_norm = 0;  // before clipping, over all tensors
  int64_t tokens = 0;    // predicted in training so far
  // Time and rate; everything above is the same in a resumed run.
  double tokens_per_s = 0, elapsed_s = 0;
};

/// One line of the log, with its line end.
std::string LogLine(const StepFigures& figures);

/// Appends lines. One thread at a time. Every call throws IoError.
class StepLog {
 public:
  /// Opens or makes the file and drops what is in it after `keep_bytes`: the
  /// lines a run wrote after the checkpoint it resumes from. FormatError when
  /// the file is shorter than that.
  StepLog(const std::string& path, uint64_t keep_bytes);
  /// Hands the line to the system at once, so that it can be followed.
  void Write(const StepFigures& figures);
  void Sync();
  uint64_t bytes() const { return bytes_; }

 private:
  std::string path_;
  FileDescriptor fd_;
  uint64_t bytes_ = 0;
};

}  // namespace tarn::train
