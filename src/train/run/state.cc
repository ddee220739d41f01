#include "train/run/state.h"

#include "core/error.h"
#include "core/json.h"

namespace tarn::train {
namespace {

using Json = nlohmann::json;
constexpr uint64_t kMaxBytes = 1 << 20;
constexpr int kFormatVersion = 1;

Json OptionalNumber(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::optional<double> ReadOptional(const Json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<double>();
}

void ReadOptions(const Json& json, TrainOptions& options) {
  // Where only schedules had a patience it went by that name.
  const bool of_schedule = !json.contains("decay_patience");
  for (const auto& [key, text] : json.items()) {
    const std::string name =
        of_schedule && key == "patience" ? "decay_patience" : key;
    if (name == "init") {
      options.init = text.get<std::string>();
      continue;
    }
    if (name == "held_out") {
      options.held_out = text.get<std::string>();
      continue;
    }
    const OptionInfo* option = FindOption(name);
    if (option == nullptr) {
      throw FormatError("train.json", "options of this version", name);
    }
    const std::string value = text.get<std::string>();
    // An empty list is the default of the only option that can be empty.
    if (!value.empty()) option->set(options, value);
  }
}

}  // namespace

std::string TrainStateToJson(const TrainState& state) {
  Json options;
  for (const auto& [name, text] : OptionTexts(state.options)) {
    options[name] = text;
  }
  Json json;
  json["format_version"] = kFormatVersion;
  json["step"] = state.step;
  json["elapsed_s"] = state.elapsed_s;
  json["cpu_s"] = state.cpu_s;
  json["log_bytes"] = state.log_bytes;
  json["tokens"] = state.tokens;
  json["ranks"] = state.ranks;
  // The fingerprint is text: readers that hold numbers as doubles would round
  // it.
  json["fingerprint"] = std::to_string(state.fingerprint);
  json["last_held_out"] = OptionalNumber(state.last_held_out);
  json["best_held_out"] = OptionalNumber(state.best_held_out);
  json["best_step"] = state.best_step;
  json["plateau_looks"] = state.plateau.evaluations;
  json["plateau_drops"] = state.plateau.drops;
  json["plateau_best"] = OptionalNumber(state.plateau.best);
  json["since_best"] = state.plateau.since_best;
  json["data"] = state.options.data;
  json["options"] = options;
  json["model"] = Json::parse(ConfigToJson(state.options.model));
  // Paths need not be UTF-8; such bytes are replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

TrainState TrainStateFromJson(std::string_view text) {
  TrainState state;
  try {
    const Json json = ParseStrictJson(text, "train.json", kMaxBytes).Take();
    if (json.at("format_version") != kFormatVersion) {
      throw FormatError("train.json: format_version", "1",
                        json.at("format_version").dump());
    }
    state.step = json.at("step").get<int64_t>();
    state.elapsed_s = json.at("elapsed_s").get<double>();
    // Earlier checkpoints had neither.
    state.cpu_s = json.value("cpu_s", 0.0);
    state.ranks = json.value("ranks", int64_t{1});
    state.plateau.evaluations = json.value("plateau_looks", int64_t{0});
    state.plateau.drops = json.value("plateau_drops", int64_t{0});
    state.plateau.since_best =
        json.value("since_best", state.plateau.evaluations);
    if (json.contains("plateau_best")) {
      state.plateau.best = ReadOptional(json.at("plateau_best"));
    }
    state.log_bytes = json.at("log_bytes").get<uint64_t>();
    state.fingerprint = std::stoull(json.at("fingerprint").get<std::string>());
    state.last_held_out = ReadOptional(json.at("last_held_out"));
    state.best_held_out = ReadOptional(json.at("best_held_out"));
    state.best_step = json.at("best_step").get<int64_t>();
    state.options.data = json.at("data").get<std::vector<std::string>>();
    ReadOptions(json.at("options"), state.options);
    state.options.model = ConfigFromJson(json.at("model").dump()).Take();
    // Runs of the first version learned text only: so many tokens a step.
    const TrainOptions& o = state.options;
    state.tokens = json.contains("tokens")
                       ? json.at("tokens").get<int64_t>()
                       : state.step * o.batch * o.accumulate * o.seq_len;
  } catch (const Error& error) {
    throw FormatError(error.what());
  } catch (const std::exception& error) {
    // nlohmann's messages name key and byte; stoull's are of no use but rare.
    throw FormatError("train.json", "the state of a run", error.what());
  }
  if (state.plateau.evaluations < 0 || state.plateau.drops < 0 ||
      state.plateau.drops > state.step) {
    throw FormatError(
        "train.json: plateau_drops",
        StrCat("0 to ", state.step, ", and no negative count of evaluations"),
        StrCat(state.plateau.drops));
  }
  if (state.plateau.since_best < 0) {
    throw FormatError("train.json: since_best", "0 or more",
                      StrCat(state.plateau.since_best));
  }
  if (state.step < 0 || state.step > state.options.schedule.steps) {
    throw FormatError("train.json: step",
                      StrCat("0 to ", state.options.schedule.steps),
                      StrCat(state.step));
  }
  return state;
}

}  // namespace tarn::train
