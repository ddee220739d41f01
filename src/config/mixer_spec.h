// A mixer turns the rows of a layer into rows with a memory of the past (or of
// the whole sequence): linear attention, softmax attention, recurrences. One
// row of this registry says everything about a mixer except its arithmetic. The
// runtime and the operators have registries of their own for the arithmetic,
// keyed by the same name.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"

namespace tarn {

struct ModelConfig;
enum class AttentionKind : int;

/// Name and shape of a tensor of the weight file.
using NamedShape = std::pair<std::string, std::vector<int64_t>>;

/// One tensor that a layer carries from token to token, for one sequence. What
/// states do (clone, copy, reorder, reset, hash, compare, save, load, check,
/// count) follows from a list of these.
struct StateTensor {
  const char* name;            // "S", "z", "keys", ...
  std::vector<int64_t> shape;  // of one sequence; where it grows, of one token
  float initial = 0.0f;        // every entry before the first token
  bool grows = false;          // [tokens, shape...]: a cache
  DType dtype = DType::kF32;
  int64_t kept = 0;  // where it grows: the last tokens that count; 0: all

  int64_t elements() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
  bool operator==(const StateTensor&) const = default;
};
using StateSpec = std::vector<StateTensor>;

/// What a mixer can be asked to do.
struct MixerCapabilities {
  bool causal = true;         // in a decoder
  bool bidirectional = true;  // in an encoder
  bool cross = false;         // over a memory
  bool recurrent = false;     // has a state: prefill and step
  bool dropout = false;       // attention_dropout acts on its weights
  bool rotary = true;         // takes products of queries and keys
  // Rows of its layers are not turned, while other layers of a model are.
  bool without_rotary = false;
  bool position_table = false;  // has weights for max_sequence_length positions
};

/// What one head costs, 2 FLOP a multiply-add.
struct MixerCost {
  int64_t sequence_flop = 0;  // n tokens at once
  int64_t step_flop = 0;      // one more token after n others
  int64_t step_bytes = 0;     // of state that this step reads
};

/// A number that only this mixer reads: a key of the section of config.json
/// that has the name of the mixer's family. Keys of the families of this tree
/// are members of ModelConfig and rows of config/fields.cc.
struct MixerKey {
  std::string name;  // in flags, patterns and flat JSON: a unique name
  std::string key;   // in its section; empty: name
  std::string help;
  double min, max, value;  // both ends inclusive; value: where it is not given
  bool integer = false;
};
/// The value that a configuration has for such a key. Throws ArgumentError for
/// a name that no mixer registered.
double OwnKey(const ModelConfig& config, std::string_view name);

/// One row. The functions get the finished configuration as one layer sees it
/// (LayerView): with that layer's options only.
struct MixerSpec {
  const char* name;
  const char* family;
  /// Sections of config.json whose keys it reads.
  std::vector<const char*> sections;
  MixerCapabilities can;
  /// Throws ArgumentError naming the key that makes the layer impossible.
  std::function<void(const ModelConfig& layer)> check = nullptr;
  /// Tensors of a layer's mixer, in the order of the weight file, without the
  /// prefix of the layer.
  std::function<std::vector<NamedShape>(const ModelConfig& layer)> weights =
      nullptr;
  /// Empty for mixers that are not recurrent.
  std::function<StateSpec(const ModelConfig& layer)> state = nullptr;
  /// The cost of one head; null where it has not been counted.
  std::function<MixerCost(const ModelConfig& layer, int64_t n, bool causal)>
      cost = nullptr;
  /// Keys of a mixer from outside the tree, in the section named after its
  /// family, which need not be among `sections`.
  std::vector<MixerKey> keys = {};
  /// Those keys of its sections that a layer reads; null: all of them.
  std::function<std::vector<const char*>(const ModelConfig& layer)> reads =
      nullptr;
};

/// Adds a row and returns the kind by which configurations refer to it. The
/// spec is copied. Throws ArgumentError for a name that is taken, also that of
/// a key, or a function that is missing.
/// Thread-safe; call it before a configuration names the mixer.
AttentionKind RegisterMixer(const MixerSpec& spec);

/// The row of a kind. References stay valid for the life of the program.
const MixerSpec& Spec(AttentionKind kind);
/// All names, in the order of their kinds.
std::vector<const char*> MixerNames();

/// The rows that every build has, in the order of AttentionKind; defined by
/// src/mixers, one line a family.
std::vector<MixerSpec> BuiltinMixers();

}  // namespace tarn
