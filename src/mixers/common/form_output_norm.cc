#include "mixers/common/form_output_norm.h"

namespace tarn {

OwnKey OutputNormKey() {
  return {.name = "output_norm_eps",
          .help = "eps of the output norm of recurrent mixers; 0: norm_eps",
          .type = RealKey{0.0, 1.0, 0.0},
          .key = "eps",
          .section = kOutputNormSection};
}

double OutputNormEps(const ModelConfig& layer) {
  const double given = KeyOf<double>(layer, "output_norm_eps");
  return given > 0.0 ? given : layer.norm_eps;
}

}  // namespace tarn
