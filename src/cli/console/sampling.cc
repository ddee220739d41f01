#include "cli/console/sampling.h"

namespace tarn::cli {

void DeclareSampling(ArgumentParser& parser, SamplerOptions& sampler) {
  parser
      .Add("--temperature", sampler.temperature,
           "sampling temperature; 0 always takes the likeliest token. A "
           "directory's generation_config.json may have other defaults")
      .ShowDefault();
  parser.Add("--top-k", sampler.top_k, "keep the k likeliest tokens; 0: off")
      .Whole(0, INT64_MAX)
      .ShowDefault();
  parser
      .Add("--top-p", sampler.top_p,
           "keep the likeliest tokens whose probabilities add up to this; "
           "1: off")
      .ShowDefault();
  parser
      .Add("--min-p", sampler.min_p,
           "drop tokens less likely than this fraction of the likeliest; "
           "0: off")
      .ShowDefault();
}

void UseDefaultSampling(const ArgumentParser& parser,
                        const GenerationDefaults& defaults,
                        SamplerOptions& sampler) {
  if (!defaults.sampler_given) return;
  const SamplerOptions& theirs = defaults.sampler;
  if (!parser.Has("--temperature")) sampler.temperature = theirs.temperature;
  if (!parser.Has("--top-k")) sampler.top_k = theirs.top_k;
  if (!parser.Has("--top-p")) sampler.top_p = theirs.top_p;
  if (!parser.Has("--min-p")) sampler.min_p = theirs.min_p;
}

}  // namespace tarn::cli
