// A mixer maps the rows of a layer to rows with a memory of the past (or of
// the whole sequence): linear attention, softmax attention, recurrences. One
// row of this registry says everything about a mixer except its arithmetic. The
// runtime and the operators have registries of their own for the arithmetic,
// keyed by the same name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/own_key.h"

namespace tarn {

struct ModelConfig;
enum class AttentionKind : int;

/// Name and shape of a tensor of the weight file.
using NamedShape = std::pair<std::string, std::vector<int64_t>>;

/// How coarsely a matrix may be held where a model's matrices are rounded to
/// groups with a shared scale: as any, with 8 bits a number at least, or not at
/// all. What decides how long a memory lasts is among the last: an error there
/// is taken to the power of the tokens that it sees.
enum class Precision { kGroups, kByte, kFloat };
/// The name of a tensor of the weight file, and how it may be held.
using NamedPrecision = std::pair<std::string, Precision>;

/// Windows of up to this many tokens are held as rings, all of whose memory a
/// new state has; the rows of larger ones grow with the text, as those of a
/// cache.
inline constexpr int64_t kLargestRing = 4096;

/// One tensor that a layer carries from token to token, for one sequence. What
/// states do (clone, copy, reorder, reset, hash, compare, save, load, check,
/// count) follows from a list of these.
struct StateTensor {
  const char* name;            // "S", "z", "keys", ...
  std::vector<int64_t> shape;  // of one sequence; where it grows, of one token
  float initial = 0.0f;        // every entry before the first token
  bool grows = false;          // [tokens, shape...]: a cache
  int64_t kept = 0;  // where it grows: the last tokens that count; 0: all
  /// Where it grows: whether a state may hold its rows, the last axis of
  /// `shape`, rounded (kernels/softmax_attention/cache_type.h).
  bool rounds = false;

  /// Tokens of the ring that holds it in the runtime, 0: none.
  int64_t ring() const { return kept <= kLargestRing ? kept : 0; }
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
  // In cross attention where the layers' own mixers cannot be: one mixer's.
  bool cross_for_others = false;
  bool recurrent = false;  // has a state: prefill and step
  bool dropout = false;    // drops some of its weights in training
  bool pairs = false;      // training keeps a weight for each pair of tokens
  bool rotary = true;      // takes products of queries and keys
  // Rows of its layers are not rotated, while those of other layers are.
  bool without_rotary = false;
};

/// What one head costs, 2 FLOP a multiply-add.
struct MixerCost {
  int64_t sequence_flop = 0;  // n tokens at once
  int64_t step_flop = 0;      // one more token after n others
  int64_t step_bytes = 0;     // of state that this step reads
};

/// One row. The functions get the finished configuration as one layer sees it
/// (LayerView): with that layer's options only.
struct MixerSpec {
  const char* name;
  const char* family;
  /// Sections of config.json whose keys it reads.
  std::vector<const char*> sections;
  /// More of them, which a file holds only where one of their keys is not at
  /// its default.
  std::vector<const char*> optional_sections = {};
  MixerCapabilities can;
  /// Throws ArgumentError naming the key that makes the layer impossible.
  std::function<void(const ModelConfig& layer)> check = nullptr;
  /// Tensors of a layer's mixer, in the order of the weight file, without the
  /// prefix of the layer.
  std::function<std::vector<NamedShape>(const ModelConfig& layer)> weights =
      nullptr;
  /// Those of its matrices, by their names in `weights`, that need more than
  /// kGroups.
  std::vector<NamedPrecision> precise = {};
  /// Empty for mixers that are not recurrent.
  std::function<StateSpec(const ModelConfig& layer)> state = nullptr;
  /// The cost of one head; null where it has not been counted.
  std::function<MixerCost(const ModelConfig& layer, int64_t n, bool causal)>
      cost = nullptr;
  /// Keys that come with this mixer, in new sections: that of its family, which
  /// is among `sections` unless it is an optional one, or others, which other
  /// mixers may read too.
  std::vector<OwnKey> keys = {};
  /// Those keys of its sections that a layer reads, and `rotary_place` where it
  /// does; null: all keys of its sections.
  std::function<std::vector<const char*>(const ModelConfig& layer)> reads =
      nullptr;
  /// Fills in own keys that follow from others, in a configuration or in one
  /// layer's view of it. Null: none.
  std::function<void(ModelConfig& config)> derive = nullptr;
  /// Its integer key that says how many channels of a query or key it rotates,
  /// 0: all d_key; null: it rotates all.
  const char* rotary_key = nullptr;
  /// Its flag that says whether a layer rotates at all; null: it does.
  const char* rotate_key = nullptr;
  /// Its real key with a layer's own base of the frequencies, which are then
  /// not scaled, 0: the model's; null: it has none.
  const char* rotary_base_key = nullptr;
  /// Its integer key that says for how many positions it has weights; null: it
  /// takes sequences of any length.
  const char* positions_key = nullptr;
  /// Numbers of a row that the first layer of a stack with such a mixer makes
  /// for the later ones, the same in all; 0 or null: none. The views of the
  /// later layers say `reads_passed`.
  std::function<int64_t(const ModelConfig& layer)> passed = nullptr;
  /// What its modules ask of the row, as a JSON object, for other languages;
  /// empty: nothing.
  std::string form = {};
  /// The mixers of a parallel one, which all read the same rows and whose
  /// results are added (parallel_mixer.cc); empty for all others.
  std::vector<AttentionKind> branches = {};
  /// Its place among the mixers of every build: lower ones first, equal ones in
  /// the order of their folders.
  int place = 100;
};

/// Adds a row and returns the kind by which configurations refer to it. The
/// spec is copied. Throws ArgumentError for a name that is taken, also that of
/// a key, or a function that is missing.
/// Thread-safe; call it before a configuration names the mixer.
AttentionKind RegisterMixer(const MixerSpec& spec);

/// The row of a kind. References stay valid for the life of the program.
const MixerSpec& Spec(AttentionKind kind);
/// The kind of a name, or of two or three names with '+' between them: that of
/// a parallel mixer. Throws ArgumentError for a name that no mixer has.
AttentionKind MixerKind(std::string_view name);
/// The same; nothing for a name that no mixer has.
std::optional<AttentionKind> FindMixer(std::string_view name);
/// All names in the order of their kinds, without those of parallel mixers.
std::vector<const char*> MixerNames();

/// The rows that every build has: what the folders of src/mixers define, listed
/// by the build.
std::vector<MixerSpec> BuiltinMixers();

}  // namespace tarn
