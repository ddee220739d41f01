// What a checkpoint keeps besides weights and optimiser state: train.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "train/options/options.h"

namespace tarn::train {

struct TrainState {
  TrainOptions options;      // as the run began; model with its vocabulary
  int64_t step = 0;          // updates made
  double elapsed_s = 0;      // spent in training, over all parts of the run
  double cpu_s = 0;          // the same, of all threads of the process
  uint64_t log_bytes = 0;    // length of log.jsonl at this step
  int64_t tokens = 0;        // learned from so far
  int64_t ranks = 1;         // that made the newest part of the run
  uint64_t fingerprint = 0;  // of the text
  // Held-out figures in the run's metric (metrics.h), once there are any.
  std::optional<double> last_held_out, best_held_out;
  int64_t best_step = 0;
  Plateau plateau;
};

std::string TrainStateToJson(const TrainState& state);
/// Throws FormatError naming the key for text that is not such a state.
TrainState TrainStateFromJson(std::string_view json);

}  // namespace tarn::train
