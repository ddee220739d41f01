// Configurations in words, as tests write them.
#pragma once

#include <map>
#include <string>

#include "config/model_config.h"

namespace tarn {

inline void Set(ModelConfig& config, const std::string& key,
                const std::string& text) {
  SetConfigField(config, key, text);
}

using Words = std::map<std::string, std::string>;

inline const Words kImageWords = {{"task", "image"},
                                  {"image_height", "28"},
                                  {"image_width", "28"},
                                  {"image_channels", "1"}};
inline const Words kCtcWords = {{"arch", "encoder"},
                                {"task", "ctc"},
                                {"n_classes", "11"},
                                {"input_dim", "40"}};

inline ModelConfig With(Words words, const Words& changes = {}) {
  ModelConfig config;
  for (const auto& [name, value] : changes) words[name] = value;
  for (const auto& [name, value] : words) Set(config, name, value);
  return config;
}

}  // namespace tarn
