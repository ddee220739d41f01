// The JSON-lines log of a run: one object a step, in OUT/log.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/file.h"
#include "train/options/options.h"

namespace tarn::train {

/// What is known after an update. Losses are means in nats per token, or per
/// example where it has a label. Shares are from 0 to 1.
struct StepFigures {
  int64_t step = 0;  // updates made
  // The device and precision used: a run may continue on another device.
  Device device = Device::kCpu;
  Precision precision = Precision::kF32;
  // Figures of the training rows of this update.
  double loss = 0;
  std::optional<double> bits_per_byte;  // text
  std::optional<double> bits_per_dim;   // images: a predicted byte
  std::optional<double> accuracy;       // labels
  // Figures of held-out data, where they were measured.
  std::optional<double> val_loss, val_bits_per_byte, val_bits_per_dim,
      val_accuracy,
      val_token_error_rate;  // edits a target token (letter) of greedy decodes
  // Test figures, by which no model is chosen, measured at the same moments.
  std::optional<double> test_loss, test_token_error_rate;
  double lr = 0;
  double grad_norm = 0;  // before clipping, over all tensors
  int64_t tokens = 0;    // learned from so far: read with a label, or predicted
  // Frames of an epoch (all training recordings), with held-out figures.
  std::optional<int64_t> epoch_tokens;
  // The number of ranks and, where there are several, the seconds of this
  // update in which this rank exchanged numbers with the others or waited for
  // theirs.
  int64_t ranks = 1;
  double exchange_s = 0;
  // Bytes of this update that this rank gave to those that share its rows'
  // tokens.
  std::optional<int64_t> sequence_bytes;
  // Time and rate; everything above is the same in a resumed run.
  // cpu_s: of all threads of the process.
  double tokens_per_s = 0, elapsed_s = 0, cpu_s = 0;
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
