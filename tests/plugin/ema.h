// A mixer from outside the tree: an exponential moving average of projected
// rows with a decay that is learned, one a channel.
//   u_t = W_in x_t,  h_t = a h_{t-1} + (1 - a) u_t,  y_t = W_out h_t,
//   a = least + (1 - least) sigmoid(decay)
// Everything a family needs is in this folder; src/ knows nothing of it.
#pragma once

#include "config/model_config.h"

namespace tarn::plugin {

/// The family's own key: `least` in the section "ema" of config.json.
inline double Least(const ModelConfig& layer) {
  return KeyOf<double>(layer, "ema_least");
}

/// Makes "ema" known to configurations and to the runtime. Safe to repeat.
void RegisterEma();
/// And its module to the C++ models of the torch side.
void RegisterEmaModule();

}  // namespace tarn::plugin
