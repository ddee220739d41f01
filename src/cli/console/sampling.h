// --temperature, --top-k, --top-p and --min-p, of the subcommands that draw.
#pragma once

#include "cli/console/parse.h"
#include "runtime/session/loaded_model.h"

namespace tarn::cli {

void DeclareSampling(ArgumentParser& parser, SamplerOptions& sampler);

/// After Parse: options that were not given become those of the directory's
/// generation_config.json, where that has them.
void UseDefaultSampling(const ArgumentParser& parser,
                        const GenerationDefaults& defaults,
                        SamplerOptions& sampler);

}  // namespace tarn::cli
