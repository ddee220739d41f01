#include "cli/commands/training_facts.h"

#include "core/file.h"
#include "core/json.h"

namespace tarn::cli {
namespace {

constexpr uint64_t kMaxBytes = 1 << 20;  // as the trainer reads it

}  // namespace

nlohmann::ordered_json TrainingFacts(const std::string& dir) {
  const std::string path = dir + "/checkpoint/train.json";
  const Result<std::string> text = ReadFile(path, kMaxBytes);
  if (!text.ok()) return nullptr;
  const auto read = ParseStrictJson(text.value(), path, kMaxBytes);
  if (!read.ok() || !read.value().is_object()) return nullptr;
  const nlohmann::json& state = read.value();
  const auto step = state.find("step");
  const auto options = state.find("options");
  if (step == state.end() || !JsonInteger(*step) || options == state.end() ||
      !options->is_object()) {
    return nullptr;
  }
  // Runs of earlier versions had the CPU and float32 only.
  const auto word = [&](const char* name, const char* missing) {
    const auto found = options->find(name);
    if (found == options->end()) return std::string(missing);
    return found->is_string() ? found->get<std::string>() : std::string("?");
  };
  return {{"updates", *JsonInteger(*step)},
          {"device", word("device", "cpu")},
          {"precision", word("precision", "f32")}};
}

}  // namespace tarn::cli
