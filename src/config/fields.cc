#include "config/fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "core/overloaded.h"
#include "core/text.h"

namespace tarn {
namespace {

// The words of each choice, in the order of its enum.
constexpr const char* kArchWords[] = {"decoder", "encoder", "seq2seq",
                                      "rnn",     "lstm",    "cnn"};
constexpr const char* kTaskWords[] = {"lm", "classify", "seq2seq", "image",
                                      "ctc"};
constexpr const char* kCrossWords[] = {"linear", "full"};
constexpr auto kFeatureMapWords = [] {
  std::array<const char*, std::size(kFeatureMaps)> words{};
  for (size_t i = 0; i < words.size(); ++i) words[i] = kFeatureMaps[i].name;
  return words;
}();
constexpr const char* kDenominatorWords[] = {
    Name(Denominator::kExact), Name(Denominator::kCompat),
    Name(Denominator::kNone), Name(Denominator::kSigned)};
constexpr const char* kPositionsWords[] = {"none", "sinusoidal", "learned",
                                           "rotary"};
constexpr const char* kPositionCombineWords[] = {"add", "concat"};
constexpr const char* kRotaryPlaceWords[] = {"before", "after"};
constexpr const char* kNormWords[] = {"post", "pre"};
constexpr const char* kNormKindWords[] = {Name(NormKind::kLayer),
                                          Name(NormKind::kRms)};
constexpr const char* kFeedForwardWords[] = {"mlp", "swiglu", "channel-mix"};
constexpr const char* kActivationWords[] = {"relu", "gelu"};
constexpr const char* kTokenizerWords[] = {"byte", "char", "bpe", "world",
                                           "ids"};

template <auto Member>
constexpr ChoiceField Choice(std::span<const char* const> words,
                             bool derived = false) {
  return {words, derived,
          [](const ModelConfig& config) {
            return static_cast<int>(config.*Member);
          },
          [](ModelConfig& config, int index) {
            using Enum = std::remove_reference_t<decltype(config.*Member)>;
            config.*Member = static_cast<Enum>(index);
          }};
}

// Sizes are bounded so that no product of theirs overflows int64: the largest
// is that of an encoder and a decoder stack, 12 * 2^12 layers * 2^12 heads *
// 2^16 * 2^16 < 2^60.
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxWidth = int64_t{1} << 16;
constexpr int64_t kMaxHidden = int64_t{1} << 20;
constexpr int64_t kMaxLayers = int64_t{1} << 12;
constexpr int64_t kMaxHeads = int64_t{1} << 12;
constexpr int64_t kMaxPositions = int64_t{1} << 24;
constexpr int64_t kMaxCount = int64_t{1} << 20;   // of keys, classes, updates
constexpr int64_t kMaxRounds = int64_t{1} << 10;  // of hashing, of clustering
constexpr int64_t kMaxBits = 63;                  // a code is one int64
constexpr int64_t kMaxKernel = int64_t{1} << 12;
constexpr int64_t kMaxShortWidth = 8;
constexpr int64_t kMaxMixtures = int64_t{1} << 10;
constexpr int64_t kMaxSide = int64_t{1} << 12;  // of an image, in pixels
constexpr int64_t kMaxChannels = 3;
// Largest double below 1 (a dropout of 1 would drop everything), and the
// smallest normal float (eps lives in float32 kernels).
constexpr double kBelowOne = 1.0 - 0x1p-53;
constexpr double kMinEps = 0x1p-126;

using C = ModelConfig;
constexpr ConfigField kFields[] = {
    {"vocab_size", "token ids the model knows",
     IntegerField{&C::vocab_size, 1, kMaxVocab}, "model"},
    {"d_model", "width of the model",
     IntegerField{&C::d_model, 1, kMaxWidth}, "model"},
    {"n_layers", "encoder layers",
     IntegerField{&C::n_layers, 1, kMaxLayers}, "model"},
    {"n_heads", "attention heads of a layer",
     IntegerField{&C::n_heads, 1, kMaxHeads}, "model"},
    {"d_key", "width of a head's queries and keys; 0: d_model / n_heads",
     IntegerField{&C::d_key, 1, kMaxWidth, true}, "model"},
    {"d_value", "width of a head's values; 0: d_model / n_heads",
     IntegerField{&C::d_value, 1, kMaxWidth, true}, "model"},
    {"d_ff", "hidden width of the feed-forward part; 0: 4 * d_model",
     IntegerField{&C::d_ff, 1, kMaxHidden, true}, "feed_forward"},
    {"attention", "mixer of all layers",
     Choice<&C::attention>({}), "layers"},
    {"feature_map", "map of queries and keys in linear attention",
     Choice<&C::feature_map>(kFeatureMapWords), "linear"},
    {"denominator", "how linear attention normalises its sums",
     Choice<&C::denominator>(kDenominatorWords), "linear"},
    {"eps", "added to the denominator by 'compat'",
     RealField{&C::eps, kMinEps, 1.0}, "linear"},
    {"positions", "position encoding",
     Choice<&C::positions>(kPositionsWords), "positions", "kind"},
    {"position_combine", "add or concatenate sinusoidal positions",
     Choice<&C::position_combine>(kPositionCombineWords),
     "positions", "combine"},
    {"max_positions", "rows of the learned position table",
     IntegerField{&C::max_positions, 1, kMaxPositions}, "positions"},
    {"rotary_place", "rotate before or after the feature map",
     Choice<&C::rotary_place>(kRotaryPlaceWords), "positions"},
    {"rotary_base", "base of the rotary frequencies",
     RealField{&C::rotary_base, 1.0, 1e12}, "positions"},
    {"norm", "norms after or before each part of a layer",
     Choice<&C::norm>(kNormWords), "norm", "place"},
    {"norm_kind", "layer norm or root mean square norm",
     Choice<&C::norm_kind>(kNormKindWords), "norm", "kind"},
    {"final_norm", "norm after the last layer",
     BoolField{&C::final_norm}, "norm", "final"},
    {"norm_eps", "added inside the root of norms",
     RealField{&C::norm_eps, kMinEps, 1.0}, "norm", "eps"},
    {"activation", "activation of the feed-forward part; gelu is exact",
     Choice<&C::activation>(kActivationWords), "feed_forward"},
    {"feed_forward",
     "feed-forward part: two matrices and an activation, a gated unit, or "
     "RWKV's channel mix",
     Choice<&C::feed_forward>(kFeedForwardWords), "feed_forward", "kind"},
    {"dropout", "fraction of activations dropped in training",
     RealField{&C::dropout, 0.0, kBelowOne}, "model"},
    {"attention_dropout",
     "fraction of attention weights dropped; 0 without softmax layers",
     RealField{&C::attention_dropout, 0.0, kBelowOne}, "softmax"},
    {"tied_head", "the head shares the token embedding's weights",
     BoolField{&C::tied_head}, "model"},
    {"tokenizer", "type of tokenizer",
     Choice<&C::tokenizer>(kTokenizerWords), "model"},
    {"arch", "architecture",
     Choice<&C::arch>(kArchWords), "model"},
    {"task", "task of the model; default: the first task of arch",
     Choice<&C::task>(kTaskWords, true), "model"},
    {"n_classes", "classes of classify, symbols and blank of ctc; otherwise 0",
     IntegerField{&C::n_classes, 0, kMaxCount}, "model"},
    {"n_decoder_layers", "decoder layers of seq2seq; 0: n_layers",
     IntegerField{&C::n_decoder_layers, 0, kMaxLayers}, "model"},
    {"cross_attention",
     "seq2seq: cross attention; default: linear with attention linear, "
     "otherwise full",
     Choice<&C::cross_attention>(kCrossWords, true), "model"},
    {"local_context", "keys that a query of 'local' sees",
     IntegerField{&C::local_context, 0, kMaxPositions}, "softmax"},
    {"topk", "keys kept by 'exact-topk' and the improved clustered mixers",
     IntegerField{&C::topk, 1, kMaxCount}, "softmax"},
    {"length_limit",
     "'conditional-full' is full up to this length, then linear",
     IntegerField{&C::length_limit, 1, kMaxPositions}, "softmax"},
    {"clusters", "clusters of queries in the clustered mixers",
     IntegerField{&C::clusters, 1, kMaxWidth}, "sparse"},
    {"iterations", "iterations of clustering",
     IntegerField{&C::iterations, 1, kMaxRounds}, "sparse"},
    {"bits", "hash planes of the clustered mixers and 'reformer'",
     IntegerField{&C::bits, 1, kMaxBits}, "sparse"},
    {"hash_bias", "the clustered mixers hash with offsets",
     BoolField{&C::hash_bias}, "sparse"},
    {"hash_chunk", "positions in a chunk of 'reformer'",
     IntegerField{&C::hash_chunk, 1, kMaxCount}, "sparse"},
    {"rounds", "hash rounds of 'reformer'",
     IntegerField{&C::rounds, 1, kMaxRounds}, "sparse"},
    {"max_sequence_length", "rows of the position tables of 'aft-full'",
     IntegerField{&C::max_sequence_length, 1, kMaxPositions}, "aft"},
    {"aft_parameterization", "columns of the position tables of 'aft-full'",
     IntegerField{&C::aft_parameterization, 1, kMaxWidth}, "aft"},
    {"n_dims", "requested width of a random feature map; 0: d_key",
     IntegerField{&C::n_dims, 0, kMaxWidth}, "linear"},
    {"stabilise", "favor maps carry a running maximum",
     BoolField{&C::stabilise}, "linear"},
    {"redraw", "updates between two draws of random features; 0: never",
     IntegerField{&C::redraw, 0, kMaxCount}, "linear"},
    {"feature_seed", "seed of the random features",
     IntegerField{&C::feature_seed, 0, INT64_MAX}, "linear"},
    {"bidirectional", "an lstm of classify or ctc reads in both directions",
     BoolField{&C::bidirectional}, "recurrent"},
    {"kernel_size", "tokens that a convolution of 'cnn' sees",
     IntegerField{&C::kernel_size, 1, kMaxKernel}, "convolution"},
    {"n_mixtures", "image: logistics of a byte's distribution; 0: 10",
     IntegerField{&C::n_mixtures, 0, kMaxMixtures}, "image"},
    {"image_height", "rows of an image; 0 for other tasks",
     IntegerField{&C::image_height, 0, kMaxSide}, "image", "height"},
    {"image_width", "pixels of an image's row; 0 for other tasks",
     IntegerField{&C::image_width, 0, kMaxSide}, "image", "width"},
    {"image_channels", "bytes of an image's pixel; 0 for other tasks",
     IntegerField{&C::image_channels, 0, kMaxChannels}, "image", "channels"},
    {"input_dim", "ctc: numbers of a frame; 0 for other tasks",
     IntegerField{&C::input_dim, 0, kMaxWidth}, "model"},
    {"key_heads", "heads of keys, shared by value heads; 0: n_heads",
     IntegerField{&C::key_heads, 0, kMaxHeads}, "grouping"},
    {"conv_width", "tokens that a short convolution sees; 0: none",
     IntegerField{&C::conv_width, 0, kMaxShortWidth}, "short_convolution", "width"},
    {"gate_rank", "rank of low-rank gates; 0: see docs/attention.md",
     IntegerField{&C::gate_rank, 0, kMaxWidth}, "gates", "rank"},
    {"negative_eigenvalues",
     "the delta rule writes with betas up to 2 instead of 1",
     BoolField{&C::negative_eigenvalues}, "delta"},
    {"rotary_width", "channels that 'gated-full' rotates; 0: d_key",
     IntegerField{&C::rotary_width, 0, kMaxWidth}, "gated_softmax"},
    {"output_gate", "sigmoid gates multiply the values of 'gated-full'",
     BoolField{&C::output_gate}, "gated_softmax"},
    {"query_key_norm", "'gated-full' normalises queries and keys",
     BoolField{&C::query_key_norm}, "gated_softmax"},
};

std::string RealText(double value) {
  char buffer[32];  // the shortest form of a double takes at most 24
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  // Keeps a real number real for readers that distinguish 1 from 1.0.
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

template <typename Number>
bool ParseNumber(std::string_view text, Number& number) {
  Number parsed;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, parsed);
  if (error != std::errc() || stop != end) return false;
  number = parsed;
  return true;
}

}  // namespace

namespace {

struct Rows {
  std::deque<ConfigField> fields{std::begin(kFields), std::end(kFields)};
  std::deque<MixerKey> keys;  // what rows of registered mixers point to
  std::deque<std::string> sections;
};

Rows& TheRows() {
  static Rows rows;
  return rows;
}

void CheckOwn(const MixerKey& key) {
  const std::string where = StrCat("RegisterMixer: keys: ", key.name);
  if (key.name.empty() || FindField(key.name) != nullptr) {
    throw ArgumentError(where, "a name that no key has", Quoted(key.name));
  }
  // Written so that NaN is outside.
  if (!(key.min <= key.value && key.value <= key.max)) {
    throw ArgumentError(where, StrCat("a default from ", key.min, " to ", key.max),
                        StrCat(key.value));
  }
}

}  // namespace

const std::deque<ConfigField>& ConfigFields() { return TheRows().fields; }

void AddOwnFields(const char* section, const std::vector<MixerKey>& keys) {
  const std::vector<std::string_view> sections = SectionNames();
  if (std::find(sections.begin(), sections.end(), section) != sections.end()) {
    throw ArgumentError("RegisterMixer: family",
                        "a section of its own for its keys", Quoted(section));
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    CheckOwn(keys[i]);
    for (size_t j = 0; j < i; ++j) {
      const auto in_section = [](const MixerKey& key) {
        return key.key.empty() ? key.name : key.key;
      };
      if (keys[i].name == keys[j].name ||
          in_section(keys[i]) == in_section(keys[j])) {
        throw ArgumentError("RegisterMixer: keys", "each name once",
                            Quoted(keys[i].name) + " twice");
      }
    }
  }
  Rows& rows = TheRows();
  rows.sections.emplace_back(section);
  for (const MixerKey& key : keys) {
    const MixerKey& kept = rows.keys.emplace_back(key);
    rows.fields.push_back(
        {kept.name.c_str(), kept.help.c_str(), OwnField{&kept},
         rows.sections.back().c_str(),
         kept.key.empty() ? nullptr : kept.key.c_str()});
  }
}

std::vector<std::string_view> SectionNames() {
  std::vector<std::string_view> names = {
      "model",     "layers", "linear",       "softmax", "sparse",    "aft",
      "positions", "norm",   "feed_forward", "image",   "recurrent", "convolution",
      "grouping",  "short_convolution", "gates", "delta",
      "gated_softmax"};
  const Rows& rows = TheRows();
  names.insert(names.end(), rows.sections.begin(), rows.sections.end());
  return names;
}

double OwnField::Get(const ModelConfig& config) const {
  const auto found = config.own.find(key->name);
  return found == config.own.end() ? key->value : found->second;
}

void OwnField::Set(ModelConfig& config, double value) const {
  if (value == key->value) {
    config.own.erase(key->name);
  } else {
    config.own[key->name] = value;
  }
}

double OwnKey(const ModelConfig& config, std::string_view name) {
  const ConfigField* field = FindField(name);
  if (field == nullptr || !field->own()) {
    throw ArgumentError("OwnKey: name", "a key of a registered mixer",
                        Quoted(name));
  }
  return std::get<OwnField>(field->kind).Get(config);
}

std::vector<const char*> Words(const ChoiceField& field) {
  if (field.words.empty()) return MixerNames();
  return {field.words.begin(), field.words.end()};
}

const ConfigField* FindField(std::string_view key) {
  for (const ConfigField& field : ConfigFields()) {
    if (key == field.name) return &field;
  }
  return nullptr;
}

std::string Wanted(const ConfigField& field, bool finished) {
  return std::visit(
      Overloaded{[&](const IntegerField& f) {
                   const int64_t min = f.derived && !finished ? 0 : f.min;
                   return StrCat("an integer from ", min, " to ", f.max);
                 },
                 [](const RealField& f) {
                   if (f.max == kBelowOne)
                     return std::string("a number in [0, 1)");
                   return StrCat("a number from ", f.min, " to ", f.max);
                 },
                 [](const BoolField&) { return std::string("true or false"); },
                 [](const OwnField& f) {
                   return StrCat(f.key->integer ? "an integer" : "a number",
                                 " from ", f.key->min, " to ", f.key->max);
                 },
                 [](const ChoiceField& f) {
                   std::string text = "one of";
                   const char* separator = " ";
                   for (const char* word : Words(f)) {
                     text += separator + std::string(word);
                     separator = ", ";
                   }
                   return text;
                 }},
      field.kind);
}

std::string ValueText(const ConfigField& field, const ModelConfig& config) {
  return std::visit(
      Overloaded{
          [&](const IntegerField& f) { return StrCat(config.*f.member); },
          [&](const RealField& f) { return RealText(config.*f.member); },
          [&](const BoolField& f) {
            return std::string(config.*f.member ? "true" : "false");
          },
          [&](const OwnField& f) {
            const double value = f.Get(config);
            return f.key->integer ? StrCat(static_cast<int64_t>(value))
                                  : RealText(value);
          },
          [&](const ChoiceField& f) {
            return StrCat('"', Words(f)[static_cast<size_t>(f.get(config))],
                          '"');
          }},
      field.kind);
}

std::string DefaultText(const ConfigField& field) {
  const ModelConfig defaults;
  const auto* choice = std::get_if<ChoiceField>(&field.kind);
  if (choice == nullptr) return ValueText(field, defaults);
  const int index = choice->get(defaults);
  return index < 0 ? "" : Words(*choice)[static_cast<size_t>(index)];
}

const char* MetavarOf(const ConfigField& field) {
  return std::visit(
      Overloaded{[](const IntegerField&) { return "N"; },
                 [](const RealField&) { return "X"; },
                 [](const BoolField&) { return "false|true"; },
                 [](const OwnField& f) { return f.key->integer ? "N" : "X"; },
                 [](const ChoiceField&) { return "WORD"; }},
      field.kind);
}

void CopyField(const ConfigField& field, const ModelConfig& from,
               ModelConfig& to) {
  std::visit(Overloaded{[&](const ChoiceField& f) { f.set(to, f.get(from)); },
                        [&](const OwnField& f) { f.Set(to, f.Get(from)); },
                        [&](const auto& f) { to.*f.member = from.*f.member; }},
             field.kind);
}

bool InRange(const ConfigField& field, const ModelConfig& config) {
  return std::visit(Overloaded{[&](const IntegerField& f) {
                                 const int64_t value = config.*f.member;
                                 return (f.derived && value == 0) ||
                                        (f.min <= value && value <= f.max);
                               },
                               // Written so that NaN is outside.
                               [&](const RealField& f) {
                                 return f.min <= config.*f.member &&
                                        config.*f.member <= f.max;
                               },
                               [](const BoolField&) { return true; },
                               [&](const OwnField& f) {
                                 const double value = f.Get(config);
                                 return f.key->min <= value &&
                                        value <= f.key->max;
                               },
                               [&](const ChoiceField& f) {
                                 const int index = f.get(config);
                                 if (f.derived && index == -1) return true;
                                 return index >= 0 &&
                                        index <
                                            static_cast<int>(Words(f).size());
                               }},
                    field.kind);
}

bool SetFromText(const ConfigField& field, std::string_view text,
                 ModelConfig& config) {
  return std::visit(Overloaded{[&](const IntegerField& f) {
                                 return ParseNumber(text, config.*f.member);
                               },
                               [&](const RealField& f) {
                                 return ParseNumber(text, config.*f.member);
                               },
                               [&](const BoolField& f) {
                                 if (text != "true" && text != "false")
                                   return false;
                                 config.*f.member = text == "true";
                                 return true;
                               },
                               [&](const OwnField& f) {
                                 int64_t whole = 0;
                                 double value = 0;
                                 if (f.key->integer
                                         ? !ParseNumber(text, whole)
                                         : !ParseNumber(text, value)) {
                                   return false;
                                 }
                                 f.Set(config, f.key->integer
                                                   ? static_cast<double>(whole)
                                                   : value);
                                 return true;
                               },
                               [&](const ChoiceField& f) {
                                 const std::vector<const char*> words =
                                     Words(f);
                                 for (size_t i = 0; i < words.size(); ++i) {
                                   if (text != words[i]) continue;
                                   f.set(config, static_cast<int>(i));
                                   return true;
                                 }
                                 return false;
                               }},
                    field.kind);
}

void RefuseKey(const char* key, const std::string& wanted,
               const std::string& given) {
  throw ArgumentError(key, wanted, given);
}

const char* Name(Arch arch) { return kArchWords[static_cast<int>(arch)]; }
const char* Name(Task task) {
  return task == Task::kDerived ? "derived"
                                : kTaskWords[static_cast<int>(task)];
}
const char* Name(CrossAttention kind) {
  return kind == CrossAttention::kDerived ? "derived"
                                          : kCrossWords[static_cast<int>(kind)];
}
const char* Name(Positions positions) {
  return kPositionsWords[static_cast<int>(positions)];
}
const char* Name(PositionCombine combine) {
  return kPositionCombineWords[static_cast<int>(combine)];
}
const char* Name(RotaryPlace place) {
  return kRotaryPlaceWords[static_cast<int>(place)];
}
const char* Name(Norm norm) { return kNormWords[static_cast<int>(norm)]; }
const char* Name(FeedForwardKind kind) {
  return kFeedForwardWords[static_cast<int>(kind)];
}
const char* Name(Activation activation) {
  return kActivationWords[static_cast<int>(activation)];
}
const char* Name(TokenizerKind kind) {
  return kTokenizerWords[static_cast<int>(kind)];
}

}  // namespace tarn
