#include "runtime/session/loaded_model.h"

#include <utility>

#include "importers/generation_config.h"
#include "runtime/model/files.h"

namespace tarn {
namespace {

Result<GenerationDefaults> DefaultsOf(const ModelPath& path,
                                      const Tokenizer& tokenizer) {
  Result<PublishedGeneration> read = ReadGenerationConfig(path);
  if (!read.ok()) return read.error();
  const PublishedGeneration published = std::move(read).Take();
  GenerationDefaults defaults;
  for (const int32_t token : published.stop_tokens) {
    // Ids that stand for no text are never drawn.
    if (token < tokenizer.vocab_size()) defaults.stop_tokens.push_back(token);
  }
  if (published.sampling) {
    const PublishedSampling& sampling = *published.sampling;
    defaults.sampler.temperature = sampling.temperature;
    defaults.sampler.top_k = sampling.top_k;
    defaults.sampler.top_p = sampling.top_p;
    defaults.sampler.min_p = sampling.min_p;
    defaults.sampler.typical_p = sampling.typical_p;
    if (sampling.repetition_penalty != 1) {
      // transformers' penalty counts every token of the text.
      defaults.sampler.repeat_penalty = sampling.repetition_penalty;
      defaults.sampler.repeat_last_n = -1;
    }
    defaults.sampler_given = true;
  }
  return defaults;
}

}  // namespace

Result<LoadedModel> LoadedModel::Open(const ModelPath& path,
                                      const ModelOptions& options) {
  Result<Model> model = Model::Open(path, options);
  if (!model.ok()) return model.error();
  Result<Tokenizer> tokenizer = OpenTokenizer(path, model.value().config());
  if (!tokenizer.ok()) return tokenizer.error();
  Result<GenerationDefaults> defaults = DefaultsOf(path, tokenizer.value());
  if (!defaults.ok()) return defaults.error();
  return LoadedModel{std::move(model).Take(), std::move(tokenizer).Take(),
                     std::move(defaults).Take()};
}

}  // namespace tarn
