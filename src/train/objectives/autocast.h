// Products in bfloat16, for the length of a scope.
#pragma once

#include "torch_nn/torch.h"
#include "train/options/options.h"

namespace tarn::train {

/// torch's autocast on `device` as `precision` says: with bf16, products take
/// their inputs in bfloat16 (parameters once a scope), sums and normalisations
/// stay float32, and gradients of float32 parameters are float32. f32 switches
/// autocast off. The end restores what was set before and drops the copies of
/// parameters: the next update has other weights. It acts on this thread only.
class Autocast {
 public:
  Autocast(torch::DeviceType device, Precision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool was_enabled_;
  torch::ScalarType was_type_;
};

/// Whether products in bfloat16 are known to cost more than those in float32 on
/// `device`, as on x86 processors without AMX, where torch widens or emulates
/// what it multiplies. False where nothing is known. Thread-safe.
bool NarrowProductsCostMore(torch::DeviceType device);

}  // namespace tarn::train
