#include "train/options.h"

namespace tarn::train {

const std::vector<Preset>& Presets() {
  static const std::vector<Preset> presets = {
      {"tiny",
       "30 thousand parameters, seconds to train; to try things out",
       {{"d_model", "32"},
        {"n_layers", "1"},
        {"n_heads", "2"},
        {"batch", "4"},
        {"seq_len", "32"},
        {"warmup", "10"},
        {"steps", "200"},
        {"sample_every", "0"}}},
      {"demo",
       "0.85 million, what `make demo` trains in minutes on two cores",
       {{"d_model", "128"},
        {"n_layers", "4"},
        {"n_heads", "4"},
        {"batch", "8"},
        {"seq_len", "128"},
        {"long_every", "8"},
        {"lr", "0.002"},
        {"warmup", "100"},
        {"schedule", "cosine"},
        {"steps", "5500"}}},
      {"small",
       "5 million, a night on a few cores",
       {{"d_model", "256"},
        {"n_layers", "6"},
        {"n_heads", "8"},
        {"batch", "16"},
        {"seq_len", "256"},
        {"lr", "0.001"},
        {"warmup", "500"},
        {"steps", "50000"},
        {"dropout", "0.1"}}},
      // Katharopoulos et al. 2020, section 4.1: 4 layers of 8 heads, batch 64,
      // length 128, RAdam at 1e-3 and 1e-4 after 3000 updates; head width 32,
      // sinusoidal positions concatenated and dropout as in its code (whose
      // attention dropout acts in softmax models alone).
      {"copy-task",
       "3.2 million, shape and schedule of the paper's copy task",
       {{"d_model", "256"},
        {"n_layers", "4"},
        {"n_heads", "8"},
        {"positions", "sinusoidal"},
        {"position_combine", "concat"},
        {"norm", "post"},
        {"dropout", "0.1"},
        {"batch", "64"},
        {"seq_len", "128"},
        {"optimizer", "radam"},
        {"lr", "0.001"},
        {"warmup", "0"},
        {"schedule", "step"},
        {"decay_at", "3000"},
        {"decay_factor", "0.1"},
        {"steps", "10000"}}},
  };
  return presets;
}

}  // namespace tarn::train
