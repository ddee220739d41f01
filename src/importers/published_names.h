// What published files call tarn's keys, for errors that are found after a
// configuration has been read.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/error.h"

namespace tarn {

/// The error about a finished configuration, with the key of `object`
/// (config.json) that its key was read from in place of tarn's, with those that
/// it lies in ("rope_parameters: rope_theta"). Of several that may be meant,
/// the one that holds the value in the error, else the first. The same error
/// where the file has none of them. O(file).
Error NamedAsPublished(const nlohmann::json& object, const Error& error);

}  // namespace tarn
