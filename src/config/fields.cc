#include "config/fields.h"

#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>

namespace tarn {
namespace {

// The words of each choice, in the order of its enum.
constexpr const char* kArchWords[] = {"decoder", "encoder", "seq2seq",
                                      "rnn",     "lstm",    "cnn"};
constexpr const char* kTaskWords[] = {"lm", "classify", "seq2seq", "image",
                                      "ctc"};
constexpr const char* kCrossWords[] = {"linear", "full"};
constexpr const char* kAttentionWords[] = {"linear",
                                           "full",
                                           "local",
                                           "exact-topk",
                                           "conditional-full",
                                           "clustered",
                                           "improved-clustered",
                                           "causal-improved-clustered",
                                           "reformer",
                                           "aft-full",
                                           "aft-simple"};
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
     IntegerField{&C::vocab_size, 1, kMaxVocab}},
    {"d_model", "width of the model", IntegerField{&C::d_model, 1, kMaxWidth}},
    {"n_layers", "encoder layers", IntegerField{&C::n_layers, 1, kMaxLayers}},
    {"n_heads", "attention heads of a layer",
     IntegerField{&C::n_heads, 1, kMaxHeads}},
    {"d_key", "width of a head's queries and keys; 0: d_model / n_heads",
     IntegerField{&C::d_key, 1, kMaxWidth, true}},
    {"d_value", "width of a head's values; 0: d_model / n_heads",
     IntegerField{&C::d_value, 1, kMaxWidth, true}},
    {"d_ff", "hidden width of the feed-forward part; 0: 4 * d_model",
     IntegerField{&C::d_ff, 1, kMaxHidden, true}},
    {"attention", "kind of attention", Choice<&C::attention>(kAttentionWords)},
    {"feature_map", "map of queries and keys in linear attention",
     Choice<&C::feature_map>(kFeatureMapWords)},
    {"denominator", "how linear attention normalises its sums",
     Choice<&C::denominator>(kDenominatorWords)},
    {"eps", "added to the denominator by 'compat'",
     RealField{&C::eps, kMinEps, 1.0}},
    {"positions", "how tokens learn their place",
     Choice<&C::positions>(kPositionsWords)},
    {"position_combine", "sinusoidal positions are added or concatenated",
     Choice<&C::position_combine>(kPositionCombineWords)},
    {"max_positions", "rows of the learned position table",
     IntegerField{&C::max_positions, 1, kMaxPositions}},
    {"rotary_place", "rotate before or after the feature map",
     Choice<&C::rotary_place>(kRotaryPlaceWords)},
    {"rotary_base", "base of the rotary frequencies",
     RealField{&C::rotary_base, 1.0, 1e12}},
    {"norm", "layer norm after or before each part of a layer",
     Choice<&C::norm>(kNormWords)},
    {"final_norm", "layer norm after the last layer",
     BoolField{&C::final_norm}},
    {"norm_eps", "added to the variance in layer norm",
     RealField{&C::norm_eps, kMinEps, 1.0}},
    {"activation", "of the feed-forward part; gelu is the exact form",
     Choice<&C::activation>(kActivationWords)},
    {"dropout", "share of activations dropped in training",
     RealField{&C::dropout, 0.0, kBelowOne}},
    {"attention_dropout",
     "share of attention weights dropped; 0 where none is a softmax",
     RealField{&C::attention_dropout, 0.0, kBelowOne}},
    {"tied_head", "the head shares the token embedding's weights",
     BoolField{&C::tied_head}},
    {"tokenizer", "what a token is", Choice<&C::tokenizer>(kTokenizerWords)},
    {"arch", "decoder, encoder, seq2seq, or an earlier model",
     Choice<&C::arch>(kArchWords), 2},
    {"task", "what it learns; follows from arch where not given",
     Choice<&C::task>(kTaskWords, true), 2},
    {"n_classes", "classes of classify, symbols and blank of ctc; otherwise 0",
     IntegerField{&C::n_classes, 0, kMaxCount}, 2},
    {"n_decoder_layers", "decoder layers of seq2seq; 0: n_layers",
     IntegerField{&C::n_decoder_layers, 0, kMaxLayers}, 2},
    {"cross_attention", "seq2seq's cross attention; that of attention, or full",
     Choice<&C::cross_attention>(kCrossWords, true), 2},
    {"local_context", "keys a query of 'local' sees",
     IntegerField{&C::local_context, 0, kMaxPositions}, 2},
    {"topk", "keys kept by 'exact-topk' and the improved clustered kinds",
     IntegerField{&C::topk, 1, kMaxCount}, 2},
    {"length_limit", "'conditional-full' is full up to here, then linear",
     IntegerField{&C::length_limit, 1, kMaxPositions}, 2},
    {"clusters", "of queries, in the clustered kinds",
     IntegerField{&C::clusters, 1, kMaxWidth}, 2},
    {"iterations", "of clustering", IntegerField{&C::iterations, 1, kMaxRounds},
     2},
    {"bits", "hash planes of the clustered kinds and 'reformer'",
     IntegerField{&C::bits, 1, kMaxBits}, 2},
    {"hash_bias", "the clustered kinds hash with offsets",
     BoolField{&C::hash_bias}, 2},
    {"hash_chunk", "positions in a chunk of 'reformer'",
     IntegerField{&C::hash_chunk, 1, kMaxCount}, 2},
    {"rounds", "of hashing in 'reformer'",
     IntegerField{&C::rounds, 1, kMaxRounds}, 2},
    {"max_sequence_length", "rows of the position tables of 'aft-full'",
     IntegerField{&C::max_sequence_length, 1, kMaxPositions}, 2},
    {"aft_parameterization", "columns of the position tables of 'aft-full'",
     IntegerField{&C::aft_parameterization, 1, kMaxWidth}, 2},
    {"n_dims", "width asked of a random feature map; 0: d_key",
     IntegerField{&C::n_dims, 0, kMaxWidth}, 2},
    {"stabilise", "favor maps carry a running maximum",
     BoolField{&C::stabilise}, 2},
    {"redraw", "updates between two draws of random features; 0: never",
     IntegerField{&C::redraw, 0, kMaxCount}, 2},
    {"feature_seed", "of the random features",
     IntegerField{&C::feature_seed, 0, INT64_MAX}, 2},
    {"bidirectional",
     "an lstm that classifies or labels frames reads both ways",
     BoolField{&C::bidirectional}, 2},
    {"kernel_size", "tokens a convolution of 'cnn' sees",
     IntegerField{&C::kernel_size, 1, kMaxKernel}, 2},
    {"n_mixtures", "logistics of a byte's distribution in image; 0: 10",
     IntegerField{&C::n_mixtures, 0, kMaxMixtures}, 3},
    {"image_height", "rows of an image; 0 for other tasks",
     IntegerField{&C::image_height, 0, kMaxSide}, 3},
    {"image_width", "pixels of an image's row; 0 for other tasks",
     IntegerField{&C::image_width, 0, kMaxSide}, 3},
    {"image_channels", "bytes of an image's pixel; 0 for other tasks",
     IntegerField{&C::image_channels, 0, kMaxChannels}, 3},
    {"input_dim", "numbers of a frame in ctc; 0 for other tasks",
     IntegerField{&C::input_dim, 0, kMaxWidth}, 3},
};

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

std::string RealText(double value) {
  char buffer[32];  // the shortest form of a double takes at most 24
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  // Keeps a real a real for readers that tell 1 from 1.0.
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

std::span<const ConfigField> ConfigFields() { return kFields; }

const ConfigField* FindField(std::string_view key) {
  for (const ConfigField& field : kFields) {
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
                 [](const ChoiceField& f) {
                   std::string text = "one of";
                   const char* separator = " ";
                   for (const char* word : f.words) {
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
          [&](const ChoiceField& f) {
            return StrCat('"', f.words[f.get(config)], '"');
          }},
      field.kind);
}

std::string FieldsText(const ModelConfig& finished, int version) {
  std::string json = StrCat("{\n  \"format_version\": ", version);
  for (const ConfigField& field : ConfigFields()) {
    if (field.since > version) continue;
    json += StrCat(",\n  \"", field.name, "\": ", ValueText(field, finished));
  }
  return json + "\n}\n";
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
                               [&](const ChoiceField& f) {
                                 const int index = f.get(config);
                                 if (f.derived && index == -1) return true;
                                 return index >= 0 &&
                                        index <
                                            static_cast<int>(f.words.size());
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
                               [&](const ChoiceField& f) {
                                 for (size_t i = 0; i < f.words.size(); ++i) {
                                   if (text != f.words[i]) continue;
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
const char* Name(AttentionKind kind) {
  return kAttentionWords[static_cast<int>(kind)];
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
const char* Name(Activation activation) {
  return kActivationWords[static_cast<int>(activation)];
}
const char* Name(TokenizerKind kind) {
  return kTokenizerWords[static_cast<int>(kind)];
}

}  // namespace tarn
