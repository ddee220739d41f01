#include <cstdio>

#include "config/model_config.h"

int main() {
  tarn::ModelConfig config;
  config.layers = tarn::LayersFromText("linear,full");
  tarn::FinishConfig(config);
  std::puts(tarn::LayersText(config).c_str());
}
