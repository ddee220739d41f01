// Everything a run needs, checked, before its first step.
#pragma once

#include <memory>
#include <string>

#include "train/run/folder.h"
#include "train/run/state.h"
#include "train/tasks/task_data.h"

namespace tarn::train {

/// Devices besides the CPU that this process can train on, and how many
/// processes train. This folder knows no torch, so the caller of PlanRun looks.
struct DevicesHere {
  bool cuda = false;
  // Why there is no CUDA device, in the words of the message.
  std::string no_cuda = "the torch of this program has no CUDA device";
  int64_t ranks = 1;
  int64_t pieces = 1;  // into which every row is cut
};

struct RunPlan {
  RunFolder folder;
  FileDescriptor lock;  // of the folder
  TrainState state;     // step 0, or that of the checkpoint
  bool from_checkpoint = false;
  Device began_on = Device::kCpu;  // of the checkpoint that was read
  std::unique_ptr<TaskData> data;
};

/// What PlanRun checks before it looks at devices and writes: options, sizes
/// and that inputs can be opened. A checkpoint that the run would resume from
/// is not read, nor is the data. Throws as PlanRun does.
void CheckRun(const Given& given, const DevicesHere& here);

/// Refuses standard input, which several ranks cannot read. Throws
/// ArgumentError.
void CheckSharedInputs(const Given& given);

/// Checks options, then inputs, then the output folder, then sizes, and reads
/// the data. Throws as Train does, and DeviceError for a device that is not
/// `here`; no model or checkpoint has changed then (with --overwrite, the old
/// run is removed as the last thing).
RunPlan PlanRun(const Given& given, const DevicesHere& here = {});

/// The plan of another process of the run that PlanRun has planned in the
/// first: the same checks and data, but nothing is locked, written or removed.
/// from_checkpoint: what the first found.
RunPlan FollowRun(const Given& given, const DevicesHere& here,
                  bool from_checkpoint);

/// Bytes of memory a run will need, roughly: weights, gradients, optimiser
/// state, and the activations of one forward pass. Only the machine's memory
/// counts: another device holds what a step needs itself, and a copy of weights
/// and optimiser state passes through here at a checkpoint.
double MemoryEstimate(const TrainOptions& options, int64_t ranks = 1);

}  // namespace tarn::train
