#include "train/objectives/autocast.h"

#include <ATen/autocast_mode.h>

namespace tarn::train {

Autocast::Autocast(torch::DeviceType device, Precision precision)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      was_type_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(device_, precision == Precision::kBF16);
  at::autocast::set_autocast_dtype(device_, torch::kBFloat16);
}

Autocast::~Autocast() {
  at::autocast::set_autocast_dtype(device_, was_type_);
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  // Copies belong to the outermost scope, whether opened here or by the caller.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

bool NarrowProductsCostMore(torch::DeviceType device) {
#if defined(__x86_64__)
  if (device != torch::kCPU) return false;
  __builtin_cpu_init();
  return !__builtin_cpu_supports("amx-bf16");
#else
  return false;
#endif
}

}  // namespace tarn::train
