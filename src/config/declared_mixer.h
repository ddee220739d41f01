// A mixer whose row of the registry is data: for programs in other languages,
// which have the arithmetic and need the sizes known here.
#pragma once

#include <string_view>

#include "config/mixer_spec.h"

namespace tarn {

/// Registers a mixer described as JSON:
///   {"name": "ema", "family": "ema", "bidirectional": false,
///    "weights": [["in_projection.weight", ["d_model", "d_model"]], ...],
///    "state": [{"name": "average", "shape": ["d_model"], "initial": 0,
///               "grows": false}],
///    "keys": [{"name": "ema_least", "key": "least", "help": "...", "min": 0,
///              "max": 0.9, "default": 0, "integer": false}, ...]}
/// A key whose default is true or false takes these; one with "words" takes one
/// of them.
/// A size is a number, or keys of the configuration with a number value and '*'
/// between them ("n_heads*d_key"), read from the layer's view. "state" absent
/// or null: no recurrent form. family, state, keys and bidirectional may be
/// absent. Throws FormatError for another form and ArgumentError as
/// RegisterMixer.
AttentionKind RegisterDeclaredMixer(std::string_view json);

}  // namespace tarn
