// The options of sampling, of the subcommands that draw: a flag for each row of
// the table (runtime/sampling/option_table.h).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/console/parse.h"
#include "runtime/session/loaded_model.h"

namespace tarn::cli {

/// Where the parser writes lists; it must outlive the parser.
using SamplingLists = std::map<std::string_view, std::vector<std::string>>;

void DeclareSampling(ArgumentParser& parser, SamplingLists& lists,
                     SamplerOptions& sampler);

/// After Parse: sets the lists that were given and checks all. Throws
/// ArgumentError.
void FinishSampling(const ArgumentParser& parser, const SamplingLists& lists,
                    SamplerOptions& sampler);

/// Options that were not given become those of the directory's
/// generation_config.json, where that has them.
void UseDefaultSampling(const ArgumentParser& parser,
                        const GenerationDefaults& defaults,
                        SamplerOptions& sampler);

/// Every flag that DeclareSampling declares.
std::vector<std::string> SamplingFlags();

}  // namespace tarn::cli
