// How a model was trained, according to its run's folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tarn::cli {

/// Facts of the run whose last model is in `dir`: updates made so far, device
/// and precision of its last part, from checkpoint/train.json. Null where there
/// is no run, or a file without them: a model may exist without its run.
nlohmann::ordered_json TrainingFacts(const std::string& dir);

}  // namespace tarn::cli
