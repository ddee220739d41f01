// The tables of configurations as JSON texts, for front ends in other
// languages: names, defaults, ranges and words are defined in one place each,
// and every list of them comes from here.
#pragma once

#include <string>

#include "config/model_config.h"

namespace tarn {

/// [{"name", "elementwise", "signed", "uses_omega", "can_stabilise", "pairs",
/// "features_per_column", "constant_features"}, ...], one object for each row
/// of core/feature_map.h.
std::string FeatureMapTable();

/// [{"name", "section", "key", "help", "since", "kind", "default", "wanted",
/// ...}, ...], one object for each key of config.json, in its order. kind
/// "integer" has min, max and derived (0 stands for "worked out"), "real" min
/// and max, "choice" words and derived, "boolean" nothing more. default: the
/// value of a key that is not given, null where it is derived.
std::string ConfigFieldTable();

/// [{"name", "family", "sections", "causal", "bidirectional", "cross",
/// "recurrent", "dropout", "rotary", "form"}, ...], one object per registered
/// mixer. form: what its modules ask of the row (MixerSpec::form), null where
/// they ask nothing.
std::string MixerTable();

/// The state of a sequence: for each layer of a finished configuration a list
/// of {"name", "shape", "initial" (a number, or "-inf"), "grows"}, those of its
/// mixer before that of its feed-forward part; empty for mixers without one.
std::string StateTable(const ModelConfig& finished);

/// All keys side by side as layer i sees them (LayerView), without the pattern;
/// with parallel mixers also "branches", the same of what each of them sees,
/// and "reads_passed" of mixers that pass rows on.
std::string LayerViewText(const ModelConfig& finished, int64_t i);

}  // namespace tarn
