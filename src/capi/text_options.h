// tarn_generate_options as the runtime's options.
#pragma once

#include "capi/guard.h"
#include "runtime/generate/generate.h"

namespace tarn::capi {

/// Everything but callback, cancel and user. `c`: as ReadOptions gives it.
/// Throws ArgumentError, and FormatError for a grammar that is not valid.
/// O(vocabulary) with a grammar.
GenerateOptions GenerateOptionsOf(const tarn_model& model,
                                  const tarn_generate_options& c);

}  // namespace tarn::capi
