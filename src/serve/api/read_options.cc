#include "serve/api/read_options.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "runtime/sampling/option_table.h"

namespace tarn::serve {
namespace {

using nlohmann::json;

// No token has more bytes than this on average; a longer text cannot fit.
constexpr int64_t kMostBytesPerToken = 64;

void RefuseUnsupported(const JsonObject& request) {
  const auto differs = [&](const char* key, const json& neutral) {
    const json* value = request.Find(key);
    return value != nullptr && *value != neutral;
  };
  const std::pair<const char*, json> rows[] = {
      {"suffix", ""},
      {"audio", nullptr},
      {"modalities", json::array({"text"})},
      {"functions", json::array()},
      {"function_call", "none"},
      {"prediction", nullptr},
      {"web_search_options", nullptr},
      {"store", false},
      {"background", false},
  };
  for (const auto& [key, neutral] : rows) {
    if (!differs(key, neutral)) continue;
    throw UnsupportedParameter(request.At(key), "no such value here");
  }
}

void ReadSampler(const JsonObject& request, const ServedModel& model,
                 SamplerOptions& sampler) {
  sampler = model.loaded.defaults.sampler;
  for (const SamplerOption& option : SamplerOptionTable()) {
    const std::string name(option.name);
    const json* value = request.Find(name);
    if (value == nullptr || name == "logit_bias") continue;
    SamplerValue given;
    if (value->is_array()) {
      std::vector<std::string> words;
      for (const json& word : *value) {
        if (!word.is_string()) {
          throw FormatError(ElementName(request.At(name), words.size()),
                            "a text", JsonGiven(word));
        }
        words.push_back(word.get<std::string>());
      }
      given = std::move(words);
    } else if (!value->is_number()) {
      throw FormatError(request.At(name), WantedBy(option), JsonGiven(*value));
    } else if (const auto whole = JsonInteger(*value)) {
      given = *whole;
    } else {
      given = value->get<double>();
    }
    try {
      SetSamplerOption(sampler, name, given);
    } catch (const ArgumentError& error) {
      throw FormatError(request.At(name), error.wanted(), error.given());
    }
  }
  const std::optional<int64_t> seed =
      request.FindInteger("seed", INT64_MIN, INT64_MAX);
  if (seed && *seed >= 0) {
    sampler.seed = static_cast<uint64_t>(*seed);
  } else {
    std::random_device device;
    // Within what every client's JSON holds exactly.
    sampler.seed = ((uint64_t{device()} << 32) | device()) >> 11;
  }
}

float BiasOf(const json& value, const std::string& where) {
  if (value.is_boolean() && !value.get<bool>()) {
    return -std::numeric_limits<float>::infinity();
  }
  const double bias = value.is_number() ? value.get<double>() : 1e9;
  if (!(std::fabs(bias) <= 100)) {
    throw FormatError(where, "a number from -100 to 100, or false",
                      JsonGiven(value));
  }
  return static_cast<float>(bias);
}

// An object of ids and biases, or llama.cpp's list of pairs.
void ReadBias(const JsonObject& request, const ServedModel& model,
              SamplerOptions& sampler) {
  const json* all = request.Find("logit_bias");
  if (all == nullptr) return;
  const std::string where = request.At("logit_bias");
  const int64_t last = model.loaded.tokenizer.vocab_size() - 1;
  if (!all->is_structured() || all->size() > kMaxLogitBiases) {
    throw FormatError(where, StrCat("at most ", kMaxLogitBiases, " biases"),
                      JsonGiven(*all));
  }
  const auto add = [&](const json& id, const json& bias,
                       const std::string& name) {
    const std::optional<int64_t> token = JsonInteger(id);
    if (!token || *token < 0 || *token > last) {
      throw FormatError(name, StrCat("a token's id from 0 to ", last),
                        JsonGiven(id));
    }
    sampler.logit_bias.push_back(
        {static_cast<int32_t>(*token), BiasOf(bias, name)});
  };
  size_t index = 0;
  if (all->is_object()) {
    for (const auto& [key, bias] : all->items()) {
      const json id = json::parse(key, nullptr, /*allow_exceptions=*/false);
      add(id.is_number() ? id : json(-1), bias, StrCat(where, ".", key));
    }
    return;
  }
  for (const json& pair : *all) {
    const std::string name = ElementName(where, index++);
    if (!pair.is_array() || pair.size() != 2) {
      throw FormatError(name, "an id and a bias", JsonGiven(pair));
    }
    add(pair[0], pair[1], name);
  }
}

void ReadStops(const JsonObject& request, const char* key,
               SequenceOptions& sequence) {
  const json* stop = request.Find(key);
  if (stop == nullptr) return;
  const std::string where = request.At(key);
  const json list = stop->is_string() ? json::array({*stop}) : *stop;
  if (!list.is_array() || list.size() > kMaxRequestStops) {
    throw FormatError(where,
                      StrCat("a text, or at most ", kMaxRequestStops, " texts"),
                      JsonGiven(*stop));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string text =
        list[i].is_string() ? list[i].get<std::string>() : "";
    if (text.empty() || text.size() > kMaxRequestStopBytes) {
      throw FormatError(
          ElementName(where, i),
          StrCat("a text of 1 to ", kMaxRequestStopBytes, " bytes"),
          JsonGiven(list[i]));
    }
    sequence.stop_texts.push_back(text);
  }
}

int64_t ReadMaxTokens(const JsonObject& request, const ServedModel& model) {
  for (const char* key : {"max_completion_tokens", "max_output_tokens",
                          "max_tokens", "n_predict"}) {
    // llama.cpp's -1: as many as there may be.
    const auto given = request.FindInteger(key, -1, INT32_MAX);
    if (given && *given >= 0) return *given;
  }
  return model.options.max_tokens;
}

// Chat: logprobs true and top_logprobs; completions: logprobs, a number.
std::optional<int64_t> ReadLogprobs(const JsonObject& request) {
  const json* logprobs = request.Find("logprobs");
  const std::optional<int64_t> top =
      request.FindInteger("top_logprobs", 0, kMaxTopLogprobs);
  const std::optional<int64_t> probs =
      request.FindInteger("n_probs", 0, kMaxTopLogprobs);
  if (logprobs != nullptr && logprobs->is_number()) {
    return request.FindInteger("logprobs", 0, kMaxTopLogprobs);
  }
  const bool wanted = request.FindFlag("logprobs").value_or(false);
  if (top && *top > 0 && !wanted && logprobs != nullptr) {
    throw FormatError(request.At("top_logprobs"), "logprobs: true with it",
                      "false");
  }
  if (wanted || (top && *top > 0)) return top.value_or(0);
  if (probs && *probs > 0) return probs;
  return std::nullopt;
}

}  // namespace

TextOptions ReadTextOptions(const JsonObject& request, const ServedModel& model,
                            bool may_echo) {
  RefuseUnsupported(request);
  TextOptions options;
  SequenceOptions& sequence = options.sequence;
  ReadSampler(request, model, sequence.sampler);
  ReadBias(request, model, sequence.sampler);
  ReadStops(request, "stop", sequence);
  ReadStops(request, "stop_sequences", sequence);
  if (!request.FindFlag("ignore_eos").value_or(false)) {
    sequence.stop_tokens = model.loaded.defaults.stop_tokens;
  }
  options.max_tokens = ReadMaxTokens(request, model);
  options.choices = request.FindInteger("n", 1, kMaxChoices).value_or(1);
  const auto best = request.FindInteger("best_of", 1, kMaxChoices);
  if (best && *best != options.choices) {
    throw UnsupportedParameter(request.At("best_of"), "the same as n");
  }
  options.stream = request.FindFlag("stream").value_or(false);
  if (const auto stream = request.FindObject("stream_options")) {
    options.include_usage = stream->FindFlag("include_usage").value_or(false);
  }
  options.cache_prompt = request.FindFlag("cache_prompt").value_or(true);
  options.return_tokens = request.FindFlag("return_tokens").value_or(false);
  options.echo = request.FindFlag("echo").value_or(false);
  if (options.echo && !may_echo) {
    throw UnsupportedParameter(request.At("echo"), "false");
  }
  options.top_logprobs = ReadLogprobs(request);
  return options;
}

void ReadConstraint(const JsonObject& request, const ServedModel& model,
                    TextOptions& options) {
  struct Wanted {
    GrammarKind kind;
    std::string source, where;
  };
  std::vector<Wanted> wanted;
  if (const auto format = request.FindObject("response_format")) {
    const std::string type = format->Text("type");
    if (type == "json_schema") {
      // OpenAI's form, or the schema itself, as llama.cpp takes it.
      const auto inner = format->FindObject("json_schema");
      const JsonObject schema =
          inner ? inner->Object("schema") : format->Object("schema");
      wanted.push_back(
          {GrammarKind::kJsonSchema, schema.value().dump(), schema.At("")});
    } else if (type == "json_object") {
      const auto schema = format->FindObject("schema");
      wanted.push_back({schema ? GrammarKind::kJsonSchema : GrammarKind::kJson,
                        schema ? schema->value().dump() : "",
                        format->At("schema")});
    } else if (type != "text") {
      throw FormatError(format->At("type"), "text, json_object or json_schema",
                        Quoted(type));
    }
  }
  if (const json* schema = request.Find("json_schema")) {
    wanted.push_back(
        {GrammarKind::kJsonSchema, schema->dump(), request.At("json_schema")});
  }
  for (const auto& [key, kind] : {std::pair{"grammar", GrammarKind::kGbnf},
                                  std::pair{"regex", GrammarKind::kRegex}}) {
    const std::optional<std::string> source = request.FindText(key);
    if (source && !source->empty()) {
      wanted.push_back({kind, *source, request.At(key)});
    }
  }
  if (wanted.empty()) return;
  if (wanted.size() > 1) {
    throw FormatError(wanted[1].where, "one grammar", "a second one");
  }
  if (options.sequence.constraint != nullptr) {
    throw FormatError(wanted[0].where, "no grammar next to a forced call",
                      "one");
  }
  options.sequence.constraint =
      model.constraints->Get(wanted[0].kind, wanted[0].source,
                             options.sequence.stop_tokens, wanted[0].where);
}

std::vector<int32_t> PromptIds(const std::string& text,
                               const ServedModel& model,
                               const std::string& where) {
  const int64_t room = model.loaded.model.max_tokens();
  const int64_t most = model.options.max_prompt_tokens > 0
                           ? std::min(room, model.options.max_prompt_tokens)
                           : room;
  const auto refuse = [&](const std::string& given) {
    throw FormatError(where, StrCat("at most ", most, " tokens"), given);
  };
  if (most<INT64_MAX / kMostBytesPerToken&& static_cast<int64_t>(text.size())>
          most *
      kMostBytesPerToken) {
    refuse(StrCat(text.size(), " bytes"));
  }
  Result<std::vector<int32_t>> ids =
      model.loaded.tokenizer.Encode(text, EncodeOptions{.add_special = true});
  if (!ids.ok()) {
    throw FormatError(where, ids.error().wanted(), ids.error().given());
  }
  if (static_cast<int64_t>(ids.value().size()) > most) {
    refuse(StrCat(ids.value().size()));
  }
  return std::move(ids).Take();
}

std::vector<std::vector<int32_t>> ReadPrompts(const JsonObject& request,
                                              const ServedModel& model) {
  const json* prompt = request.Find("prompt");
  const std::string where = request.At("prompt");
  if (prompt == nullptr) return {PromptIds("", model, where)};
  return ReadTexts(*prompt, model, where, kMaxPrompts);
}

std::vector<std::vector<int32_t>> ReadTexts(const json& texts,
                                            const ServedModel& model,
                                            const std::string& where,
                                            size_t most) {
  const auto last = static_cast<int32_t>(model.loaded.model.vocab_size() - 1);
  const auto one = [&](const json& value, const std::string& name) {
    if (value.is_string()) {
      return PromptIds(value.get<std::string>(), model, name);
    }
    const json row = {{"", value}};
    return JsonObject(row, name).Integers("", 0, last);
  };
  if (texts.is_string()) return {one(texts, where)};
  if (!texts.is_array()) {
    throw FormatError(where, "a text, ids, or a list of them",
                      JsonGiven(texts));
  }
  const bool ids = !texts.empty() && texts[0].is_number();
  if (ids || texts.empty()) return {one(texts, where)};
  if (texts.size() > most) {
    throw FormatError(where, StrCat("at most ", most, " texts"),
                      StrCat(texts.size()));
  }
  std::vector<std::vector<int32_t>> all;
  for (size_t i = 0; i < texts.size(); ++i) {
    all.push_back(one(texts[i], ElementName(where, i)));
  }
  return all;
}

void FitBudget(const std::vector<std::vector<int32_t>>& prompts,
               const ServedModel& model, TextOptions& options) {
  for (const std::vector<int32_t>& prompt : prompts) {
    const int64_t room =
        model.loaded.model.max_tokens() - static_cast<int64_t>(prompt.size());
    if (room < 1 && options.max_tokens > 0) {
      throw FormatError(
          "prompt",
          StrCat("fewer than ", model.loaded.model.max_tokens(), " tokens"),
          StrCat(prompt.size()));
    }
    options.max_tokens =
        std::min(options.max_tokens, std::max<int64_t>(room, 0));
  }
}

}  // namespace tarn::serve
