#include "config/fields.h"

#include <algorithm>
#include <type_traits>

#include "config/bounds.h"
#include "core/numbers/number_text.h"
#include "core/overloaded.h"
#include "core/text.h"

namespace tarn {
namespace {

// The words of each choice, in the order of its enum.
constexpr const char* kArchWords[] = {"decoder", "encoder", "seq2seq",
                                      "rnn",     "lstm",    "cnn"};
constexpr const char* kTaskWords[] = {"lm", "classify", "seq2seq", "image",
                                      "ctc"};
constexpr const char* kPositionsWords[] = {"none", "sinusoidal", "learned",
                                           "rotary"};
constexpr const char* kPositionCombineWords[] = {"add", "concat"};
constexpr const char* kRotaryPlaceWords[] = {"before", "after"};
constexpr const char* kNormWords[] = {"post", "pre", "after", "both", "none"};
constexpr const char* kNormKindWords[] = {Name(NormKind::kLayer),
                                          Name(NormKind::kRms)};
constexpr const char* kBiasWords[] = {"auto", "all", "none"};
constexpr const char* kActivationWords[] = {"relu", "gelu", "gelu-tanh"};
constexpr const char* kTokenizerWords[] = {"byte",  "char", "bpe",
                                           "world", "ids",  "unigram"};

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

// A part of the registry of feed-forward parts.
constexpr ChoiceField FeedForwardChoice() {
  ChoiceField field = Choice<&ModelConfig::feed_forward>({});
  field.names = FeedForwardNames;
  return field;
}

constexpr int64_t kMaxKernel = int64_t{1} << 12;
constexpr int64_t kMaxMixtures = int64_t{1} << 10;
constexpr int64_t kMaxSide = int64_t{1} << 12;  // of an image, in pixels
constexpr int64_t kMaxChannels = 3;

// The mixer of cross attention: of those that read a memory.
constexpr ChoiceField CrossChoice() {
  ChoiceField field = Choice<&ModelConfig::cross_attention>({}, true);
  field.cross = true;
  return field;
}

using C = ModelConfig;
constexpr ConfigField kFields[] = {
    {"vocab_size", "token ids the model knows",
     IntegerField{&C::vocab_size, 1, kMaxVocab}, "model"},
    {"d_model", "width of the model", IntegerField{&C::d_model, 1, kMaxWidth},
     "model"},
    {"n_layers", "encoder layers", IntegerField{&C::n_layers, 1, kMaxLayers},
     "model"},
    {"n_heads", "attention heads of a layer",
     IntegerField{&C::n_heads, 1, kMaxHeads}, "model"},
    {"d_key", "width of a head's queries and keys; 0: d_model / n_heads",
     IntegerField{&C::d_key, 1, kMaxWidth, true}, "model"},
    {"d_value", "width of a head's values; 0: d_model / n_heads",
     IntegerField{&C::d_value, 1, kMaxWidth, true}, "model"},
    {"d_ff", "hidden width of the feed-forward part; 0: 4 * d_model",
     IntegerField{&C::d_ff, 1, kMaxHidden, true}, "feed_forward"},
    {"attention", "mixer of all layers", Choice<&C::attention>({}), "layers"},
    {"positions", "position encoding", Choice<&C::positions>(kPositionsWords),
     "positions", "kind"},
    {"position_combine", "add or concatenate sinusoidal positions",
     Choice<&C::position_combine>(kPositionCombineWords), "positions",
     "combine"},
    {"max_positions", "rows of the learned position table",
     IntegerField{&C::max_positions, 1, kMaxPositions}, "positions"},
    {"rotary_place", "rotate before or after the feature map",
     Choice<&C::rotary_place>(kRotaryPlaceWords), "positions"},
    {"rotary_base", "base of the rotary frequencies",
     RealField{&C::rotary_base, 1.0, 1e12}, "positions"},
    {"rotary_scaling", "scaling of the rotary frequencies for longer sequences",
     Choice<&C::rotary_scaling>(kRotaryScalingWords), "rotary_scaling", "kind"},
    {"rotary_factor", "factor by which sequences are longer",
     RealField{&C::rotary_factor, 1.0, 1e6}, "rotary_scaling", "factor"},
    {"rotary_original_positions", "length of the sequences before scaling",
     IntegerField{&C::rotary_original_positions, 0, kMaxPositions},
     "rotary_scaling", "original_positions"},
    {"rotary_low",
     "pairs with fewer rotations over that length are scaled; 'proportional': "
     "the part of the pairs that rotate",
     RealField{&C::rotary_low, 0.0, 1e6}, "rotary_scaling", "low"},
    {"rotary_high", "pairs with more are not; 0: 4 for 'llama3', 32 for 'yarn'",
     RealField{&C::rotary_high, 0.0, 1e6}, "rotary_scaling", "high"},
    {"rotary_magnitude",
     "factor of cosines and sines of 'yarn'; 0: 0.1 ln(factor) + 1",
     RealField{&C::rotary_magnitude, 0.0, 1e6}, "rotary_scaling", "magnitude"},
    {"rotary_truncate", "the ramp of 'yarn' ends at whole pairs",
     BoolField{&C::rotary_truncate}, "rotary_scaling", "truncate"},
    {"embedding_factor", "factor of the token embedding",
     RealField{&C::embedding_factor, kMinEps, 1e6}, "block"},
    {"residual_factor", "factor of each part of a layer before it is added",
     RealField{&C::residual_factor, kMinEps, 1e6}, "block"},
    {"logit_factor", "factor of the logits",
     RealField{&C::logit_factor, kMinEps, 1e6}, "block"},
    {"logit_softcap",
     "logits lie between this and its negative, by a tanh; 0: no limit",
     RealField{&C::logit_softcap, 0.0, 1e6}, "block"},
    {"norm_offset", "what norms outside mixers add to their weight",
     RealField{&C::norm_offset, 0.0, 1.0}, "block"},
    {"branch_factor",
     "factor of what each of parallel mixers gives, as in mamba2+full",
     RealField{&C::branch_factor, -1e6, 1e6}, "block"},
    {"input_norm", "a norm of the embedded rows before the first layer",
     BoolField{&C::input_norm}, "block"},
    {"parallel_residual",
     "the feed-forward part reads what the mixer of its layer reads",
     BoolField{&C::parallel_residual}, "block"},
    {"feed_forward_bias",
     "biases of the maps of mlp, swiglu, geglu, geglu-tanh and relu2; auto: of "
     "mlp alone",
     Choice<&C::feed_forward_bias>(kBiasWords), "block"},
    {"head_bias", "a bias of the logits", BoolField{&C::head_bias}, "block"},
    {"norm",
     "norms of a layer's parts: after the sum with the part, before the part, "
     "after the part, both of these, or none",
     Choice<&C::norm>(kNormWords), "norm", "place"},
    {"norm_kind", "layer norm or root mean square norm",
     Choice<&C::norm_kind>(kNormKindWords), "norm", "kind"},
    {"final_norm", "norm after the last layer", BoolField{&C::final_norm},
     "norm", "final"},
    {"norm_eps", "added inside the root of norms",
     RealField{&C::norm_eps, kMinEps, 1.0}, "norm", "eps"},
    {"activation",
     "activation of the feed-forward part; gelu is exact, gelu-tanh is not",
     Choice<&C::activation>(kActivationWords), "feed_forward"},
    {"feed_forward",
     "feed-forward part of the layers: two matrices and an activation, a gated "
     "unit, RWKV's channel mix, or none",
     FeedForwardChoice(), "feed_forward", "kind"},
    {"dropout", "fraction of activations dropped in training",
     RealField{&C::dropout, 0.0, kBelowOne}, "model"},
    {"tied_head", "the head shares the token embedding's weights",
     BoolField{&C::tied_head}, "model"},
    {"tokenizer", "type of tokenizer", Choice<&C::tokenizer>(kTokenizerWords),
     "model"},
    {"arch", "architecture", Choice<&C::arch>(kArchWords), "model"},
    {"task", "task of the model; default: the first task of arch",
     Choice<&C::task>(kTaskWords, true), "model"},
    {"n_classes", "classes of classify, symbols and blank of ctc; otherwise 0",
     IntegerField{&C::n_classes, 0, kMaxCount}, "model"},
    {"n_decoder_layers", "decoder layers of seq2seq; 0: n_layers",
     IntegerField{&C::n_decoder_layers, 0, kMaxLayers}, "model"},
    {"cross_attention",
     "seq2seq: cross attention; default: linear with attention linear, "
     "otherwise full",
     CrossChoice(), "model"},
    {"bidirectional", "bidirectional LSTM (classify, ctc)",
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
};

template <typename Number>
bool ParseNumber(std::string_view text, Number& number) {
  Number parsed;
  const char* end = text.data() + text.size();
  const auto [stop, error] = FromChars(text.data(), end, parsed);
  if (error != std::errc() || stop != end) return false;
  number = parsed;
  return true;
}

}  // namespace

std::span<const ConfigField> CoreFields() { return kFields; }

OwnValue OwnField::Get(const ModelConfig& config) const {
  const auto found = config.own.find(key->name);
  return found == config.own.end() ? DefaultOf(*key) : found->second;
}

void OwnField::Set(ModelConfig& config, OwnValue value) const {
  if (value == DefaultOf(*key)) {
    config.own.erase(key->name);
  } else {
    config.own[key->name] = value;
  }
}

namespace {

bool IsOfMixers(const ChoiceField& field) {
  return field.words.empty() && field.names == nullptr;
}

bool Takes(const ChoiceField& field, AttentionKind kind) {
  return !field.cross || Spec(kind).can.cross;
}

}  // namespace

std::vector<const char*> Words(const ChoiceField& field) {
  if (!field.words.empty()) return {field.words.begin(), field.words.end()};
  if (field.names != nullptr) return field.names();
  std::vector<const char*> names = MixerNames();
  std::erase_if(
      names, [&](const char* name) { return !Takes(field, MixerKind(name)); });
  return names;
}

int ValueOf(const ChoiceField& field, std::string_view word) {
  if (IsOfMixers(field)) {
    const auto kind = FindMixer(word);
    return kind && Takes(field, *kind) ? static_cast<int>(*kind) : -1;
  }
  const std::vector<const char*> words = Words(field);
  for (size_t i = 0; i < words.size(); ++i) {
    if (word == words[i]) return static_cast<int>(i);
  }
  return -1;
}

const char* WordOf(const ChoiceField& field, int value) {
  if (value < 0) return "";
  if (IsOfMixers(field)) {
    const auto kind = static_cast<AttentionKind>(value);
    return IsMixer(kind) && Takes(field, kind) ? Name(kind) : "";
  }
  const std::vector<const char*> words = Words(field);
  const size_t index = static_cast<size_t>(value);
  return index < words.size() ? words[index] : "";
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
                 [](const OwnField& f) { return WantedBy(*f.key); },
                 [](const ChoiceField& f) {
                   if (IsOfMixers(f) && !f.cross) {
                     return "one of " + MixersWanted();
                   }
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
          [&](const OwnField& f) { return TextOf(*f.key, f.Get(config)); },
          [&](const ChoiceField& f) {
            return StrCat('"', WordOf(f, f.get(config)), '"');
          }},
      field.kind);
}

std::string DefaultText(const ConfigField& field) {
  const ModelConfig defaults;
  const auto* choice = std::get_if<ChoiceField>(&field.kind);
  if (choice != nullptr) return WordOf(*choice, choice->get(defaults));
  std::string text = ValueText(field, defaults);
  if (text.front() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

const char* MetavarOf(const ConfigField& field) {
  return std::visit(
      Overloaded{
          [](const IntegerField&) { return "N"; },
          [](const RealField&) { return "X"; },
          [](const BoolField&) { return "false|true"; },
          [](const OwnField& f) {
            constexpr const char* kNames[] = {"X", "N", "false|true", "WORD"};
            return kNames[f.key->type.index()];
          },
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
  return std::visit(
      Overloaded{
          [&](const IntegerField& f) {
            const int64_t value = config.*f.member;
            return (f.derived && value == 0) ||
                   (f.min <= value && value <= f.max);
          },
          // Written so that NaN is outside.
          [&](const RealField& f) {
            return f.min <= config.*f.member && config.*f.member <= f.max;
          },
          [](const BoolField&) { return true; },
          [&](const OwnField& f) { return InRange(*f.key, f.Get(config)); },
          [&](const ChoiceField& f) {
            const int value = f.get(config);
            return (f.derived && value == -1) || *WordOf(f, value) != '\0';
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
                                 const auto value = ValueFrom(*f.key, text);
                                 if (value) f.Set(config, *value);
                                 return value.has_value();
                               },
                               [&](const ChoiceField& f) {
                                 const int value = ValueOf(f, text);
                                 if (value >= 0) f.set(config, value);
                                 return value >= 0;
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
