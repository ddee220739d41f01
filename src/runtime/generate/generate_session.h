// Text from a session, which may speculate: generate.h for one that has read
// something before.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/generate/generate.h"
#include "runtime/session/session.h"

namespace tarn {

/// As Generate: the prompt is read after what the session has read, and nothing
/// of that again. An empty prompt continues it. GenerateOptions::history and
/// sampler_state are not used, since the session knows its tokens. Throws as
/// Session::Begin and Consume.
GenerateResult GenerateWith(Session& session, std::span<const int32_t> prompt,
                            const GenerateOptions& options,
                            const TokenSink& sink, const StopCheck& stop = {});

}  // namespace tarn
