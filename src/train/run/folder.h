// The output folder of a run: what is in it, who may write to it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/file.h"
#include "train/run/state.h"

namespace tarn::train {

/// Paths inside a run's folder. A value.
struct RunFolder {
  std::string path;
  std::string checkpoint() const { return path + "/checkpoint"; }
  std::string best() const { return path + "/best"; }
  std::string log() const { return path + "/log.jsonl"; }
  std::string model() const { return path + "/model.safetensors"; }
};

/// True when the folder holds a model or a checkpoint, whole or half replaced.
bool HoldsRun(const RunFolder& folder);
/// True when a checkpoint can be resumed from.
bool HoldsCheckpoint(const RunFolder& folder);

/// Takes the folder for this process until the result is destroyed, however
/// the process ends. Throws IoError when another process has it.
FileDescriptor LockRun(const RunFolder& folder);

/// Reads checkpoint/train.json. Throws FormatError.
TrainState ReadState(const RunFolder& folder);

/// Removes model, best model, checkpoint and log.
void RemoveRun(const RunFolder& folder);

/// Writes config.json and, unless they are empty, tokenizer.json and
/// labels.json into a model directory.
void WriteModelFiles(const std::string& dir, const ModelConfig& config,
                     const std::string& tokenizer_json,
                     const std::string& labels_json);

}  // namespace tarn::train
