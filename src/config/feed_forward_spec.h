// The feed-forward part of a layer: what follows its mixer, computed row by row
// or from a row and the one before it. One row of this registry says everything
// about a part except its arithmetic. The runtime and the modules have
// registries of their own for the arithmetic, keyed by the same name.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "config/mixer_spec.h"
#include "config/own_key.h"

namespace tarn {

struct ModelConfig;
enum class FeedForwardKind : int;

/// One row. The functions get the finished configuration as one layer sees it
/// (LayerView).
struct FeedForwardSpec {
  const char* name;
  /// Tensors under the prefix of a layer, in the order of the weight file. A
  /// part without tensors is none, and its layer has no norm for it.
  std::function<std::vector<NamedShape>(const ModelConfig& layer)> weights;
  /// Those of its matrices that need more than Precision::kGroups.
  std::vector<NamedPrecision> precise = {};
  /// What it carries from token to token; null: nothing. The names are not
  /// those of a mixer's tensors.
  std::function<StateSpec(const ModelConfig& layer)> state = nullptr;
  /// Throws ArgumentError naming the key that makes the layer impossible.
  std::function<void(const ModelConfig& layer)> check = nullptr;
  /// How many of its trained numbers one token's products read; null: all.
  std::function<int64_t(const ModelConfig& layer)> used = nullptr;
  bool activation = false;    // whether it reads the key of this name
  bool takes_biases = false;  // whether its maps may have biases
  bool seq2seq = true;        // whether both stacks of such a model may have it
  /// Keys that come with this part, in new sections: one of its name, or
  /// others.
  std::vector<OwnKey> keys = {};
};

/// Adds a row and returns the kind by which configurations refer to it. The
/// spec is copied. Throws ArgumentError for a name that is taken or a function
/// that is missing. Thread-safe; call it before a configuration names the part.
FeedForwardKind RegisterFeedForward(const FeedForwardSpec& spec);

/// The row of a kind. References stay valid for the life of the program.
const FeedForwardSpec& Spec(FeedForwardKind kind);
/// The kind of a name. Throws ArgumentError for a name that no part has.
FeedForwardKind FeedForwardOf(std::string_view name);
/// All names, in the order of their kinds.
std::vector<const char*> FeedForwardNames();

/// The rows that every build has (src/feed_forward/parts.cc); the first is the
/// default.
std::vector<FeedForwardSpec> BuiltinFeedForwards();

}  // namespace tarn
