// Everything a run needs, checked, before its first step.
#pragma once

#include <memory>

#include "train/run/folder.h"
#include "train/tasks/task_data.h"
#include "train/run/state.h"

namespace tarn::train {

struct RunPlan {
  RunFolder folder;
  FileDescriptor lock;  // of the folder
  TrainState state;     // step 0, or that of the checkpoint
  bool from_checkpoint = false;
  std::unique_ptr<TaskData> data;
};

/// Checks options, then inputs, then the output folder, then sizes, and reads
/// the data. Throws as Train does; no model or checkpoint has changed then
/// (with --overwrite, the old run is removed as the last thing).
RunPlan PlanRun(const Given& given);

/// Bytes of memory a run will need, roughly: weights, gradients, optimiser
/// state, and the activations of one forward pass.
double MemoryEstimate(const TrainOptions& options);

}  // namespace tarn::train
