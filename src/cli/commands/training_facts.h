// How a model was trained, as its run's folder tells it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tarn::cli {

/// Of the run whose last model lies in `dir`: updates made so far, device and
/// precision of its last part, from checkpoint/train.json. Null where there is no
/// run, or a file that does not say it: a model stands without its run.
nlohmann::ordered_json TrainingFacts(const std::string& dir);

}  // namespace tarn::cli
