// `tarn info`: what a model is and what it costs.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "cli/cli.h"
#include "cli/commands/model_facts.h"
#include "cli/commands/training_facts.h"
#include "cli/console/output.h"
#include "cli/console/parse.h"
#include "mixers/linear/form_costs.h"
#include "runtime/model/files.h"
#include "runtime/model/labels.h"
#include "runtime/model/supported.h"

namespace tarn::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kInfoFooter[] =
    "`config` has the keys that this model reads.\n"
    "FLOP: a multiply-add counts as 2. A linear model's state never grows. "
    "For\n"
    "softmax attention, the cost of the first token and the growth per token\n"
    "are given. `scaling` compares softmax with linear attention per token of\n"
    "a text: processed at once (parallel), one more token (step), and the\n"
    "cache or state read for it. `parameters_textbook` is 12 D^2 per layer,\n"
    "16 D^2 per layer that also attends to a source, and N D per table of\n"
    "tokens. A sequence-to-sequence model keeps the memory of a source with\n"
    "the state; a classifier has no state. `weights_in_matrices` counts them "
    "by\n"
    "the format that holds them. `mtp_layers` is there where the files have "
    "an\nextra prediction head (--speculate mtp). `training` describes the run "
    "in\n"
    "the same folder: updates made, device and precision. A model that can be\n"
    "trained but not run here is described from its files.\n\n"
    "Examples:\n"
    "  tarn info models/demo\n"
    "  tarn info models/demo --json | jq .parameters.total\n";

// Lengths at which the linear form becomes the cheaper one, by stack: an
// encoder sees all at once and has no step.
Json Crossovers(const ModelConfig& config) {
  const HeadWidths head = HeadWidthsOf(config);
  const Json encoder = {{"parallel", CrossoverTokens(head, false)}};
  const Json decoder = {{"parallel", CrossoverTokens(head, true)},
                        {"step", StepCrossoverTokens(head)},
                        {"memory", MemoryCrossoverTokens(head)}};
  if (config.arch == Arch::kEncoder) return encoder;
  if (config.arch == Arch::kDecoder) return decoder;
  return {{"encoder", encoder}, {"decoder", decoder}};
}

// Work per token with softmax and with linear attention as a text grows, and
// the lengths at which the linear form becomes the cheaper one.
Json Scaling(const ModelConfig& config) {
  if (config.arch == Arch::kSeq2seq) {
    return {{"linear_is_less_from", Crossovers(config)}};
  }
  Json tokens, softmax, linear;
  for (const int64_t n : {128, 1024, 8192, 65536}) {
    const TokenScaling at = ScalingAt(config, n);
    tokens.push_back(n);
    softmax["parallel_flop"].push_back(at.softmax_parallel_flop);
    linear["parallel_flop"].push_back(at.linear_parallel_flop);
    if (config.arch == Arch::kEncoder) continue;
    softmax["step_flop"].push_back(at.softmax_step_flop);
    linear["step_flop"].push_back(at.linear_step_flop);
    softmax["step_bytes"].push_back(at.softmax_step_bytes);
    linear["step_bytes"].push_back(at.linear_step_bytes);
  }
  return {{"tokens", tokens},
          {"softmax", softmax},
          {"linear", linear},
          {"linear_is_less_from", Crossovers(config)}};
}

int64_t Textbook(const ModelConfig& config) {
  const bool pairs = config.arch == Arch::kSeq2seq;
  // Frames are projected: a row for each of their numbers.
  const int64_t inputs =
      config.task == Task::kCtc ? config.input_dim : config.vocab_size;
  // A decoder layer beside an encoder has a second attention, 4 D^2 more.
  const int64_t second = 4 * config.d_model * config.d_model;
  const int64_t layer = TextbookParameters(config.d_model, 0);
  return config.n_layers * layer + config.n_decoder_layers * (layer + second) +
         (pairs ? 2 : 1) * inputs * config.d_model;
}

// Whether all mixers take products of queries and keys: these are compared with
// softmax; AFT has neither scores nor heads.
bool TakesScores(const ModelConfig& config) {
  for (const AttentionKind kind : MixersOf(config)) {
    if (!Spec(kind).can.rotary) return false;
  }
  return config.HasAttention();
}

// What follows from the configuration alone.
// tokenizer: null for a model that reads no tokens.
Json ConfigFacts(const ModelConfig& config, const Tokenizer* tokenizer) {
  const ParameterCounts counts = CountParameters(config);
  Json root;
  root["config"] = Json::parse(ReadKeysToJson(config));
  if (tokenizer != nullptr) {
    root["tokenizer_entries"] = tokenizer->vocab_size();
  }
  root["parameters"] = {
      {"embedding", counts.embedding}, {"positions", counts.positions},
      {"attention", counts.attention}, {"feed_forward", counts.feed_forward},
      {"norms", counts.norms},         {"recurrent", counts.recurrent},
      {"head", counts.head},           {"total", counts.Total()}};
  if (config.HasAttention()) root["parameters_textbook"] = Textbook(config);
  return root;
}

// The facts in the files of a model that the runtime refuses for `reason`.
Json FactsOfFiles(const ModelPath& path, const ModelConfig& config,
                  const Error& reason) {
  const Result<ModelFiles> files = OpenModelFiles(path, config);
  if (!files.ok()) throw ExitError(kExitBadModel, files.error().what());
  std::optional<Tokenizer> tokenizer;
  if (config.task != Task::kCtc) {
    Result<Tokenizer> opened = OpenTokenizer(path, config);
    if (!opened.ok()) throw ExitError(kExitBadModel, opened.error().what());
    tokenizer = std::move(opened).Take();
  }
  Json root = ConfigFacts(config, tokenizer ? &*tokenizer : nullptr);
  root["not_run_by_this_runtime"] = reason.what();
  int64_t bytes = 0;
  for (const WeightTensor& tensor : files.value().weights->tensors()) {
    bytes += tensor.bytes();
  }
  root["weight_bytes_in_file"] = bytes;
  if (HasLabels(config.task)) root["classes"] = files.value().labels;
  if (TakesScores(config)) root["scaling"] = Scaling(config);
  return root;
}

Json Facts(const LoadedModel& opened) {
  const Model& model = opened.model;
  const ModelConfig& config = model.config();
  Json root = ConfigFacts(config, &opened.tokenizer);
  root["weight_bytes"] = model.weight_bytes();
  for (const auto& [format, numbers] : model.weight_formats()) {
    root["weights_in_matrices"][format->name] = numbers;
  }
  if (config.task == Task::kClassify) {
    root["classes"] = model.labels();
    if (TakesScores(config)) root["scaling"] = Scaling(config);
    return root;
  }
  root["state_bytes"] = model.state_bytes();
  root["state_bytes_per_token"] = model.state_bytes_per_token();
  if (config.arch == Arch::kSeq2seq) {
    root["memory_bytes"] = model.memory_bytes();
    root["memory_bytes_per_source_token"] = model.memory_bytes_per_token();
    if (TakesScores(config)) root["scaling"] = Scaling(config);
    return root;
  }
  if (model.has_mtp()) root["mtp_layers"] = 1;
  const double element_bytes = model.bytes_per_weight();
  const TokenCost first =
      CostOfToken(config, element_bytes, model.state_bytes(), 0);
  const TokenCost second = CostOfToken(config, element_bytes, 0, 1);
  root["flop_per_token"] = first.flop;
  root["flop_per_token_growth"] = second.flop - first.flop;
  root["bytes_read_per_token"] = first.weight_bytes + first.state_bytes;
  if (TakesScores(config)) root["scaling"] = Scaling(config);
  return root;
}

std::string Grouped(const Json& value) {
  if (!value.is_number_integer()) return value.dump();
  std::string digits = std::to_string(value.get<int64_t>());
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

// Keys with underscores read as words: "flop per token  12,345".
std::string Lines(const Json& object, const std::string& indent) {
  std::string text;
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      text += indent + key + "\n" + Lines(value, indent + "  ");
      continue;
    }
    std::string words = indent + key;
    if (indent.empty()) {
      for (char& c : words) c = c == '_' ? ' ' : c;
    }
    words.resize(std::max<size_t>(words.size() + 2, 24), ' ');
    const bool plain = value.is_string();
    text += words + (plain ? value.get<std::string>() : Grouped(value)) + "\n";
  }
  return text;
}

}  // namespace

int Info(int argc, char** argv) {
  std::string dir;
  bool json = false;
  ArgumentParser parser(
      "Describes a model: configuration, sizes, cost per token.", "tarn info");
  parser.Add("DIR", dir, "model directory or GGUF file").Required();
  parser.AddFlag("--json", json, "one JSON object on stdout");
  parser.Footer(kInfoFooter);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  const ModelPath path(dir);
  const Result<ModelConfig> config = ReadModelConfig(path);
  if (!config.ok()) throw ExitError(kExitBadModel, config.error().what());
  const auto refused = CheckSupported(config.value());
  Json facts = refused
                   ? FactsOfFiles(path, config.value(), *refused)
                   : Facts(OpenModelPath(path, {WeightType::kAuto, 1, true}));
  const Json training = TrainingFacts(dir);
  if (!training.is_null()) facts["training"] = training;
  Payload payload(stdout);
  payload.Write(json ? facts.dump() + "\n" : Lines(facts, ""));
  payload.Flush();
  return kExitOk;
}

}  // namespace tarn::cli
