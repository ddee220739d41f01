// Refuses combinations of keys that make no model, by subject. Each error names
// the key to change.
#include <algorithm>

#include "config/feed_forward_form.h"
#include "config/fields.h"
#include "core/text.h"

namespace tarn {
namespace {

// The tasks an architecture can learn, as words for a message.
const char* TaskWords(Arch arch) {
  switch (arch) {
    case Arch::kDecoder:
      return "lm or image";
    case Arch::kEncoder:
      return "classify or ctc";
    case Arch::kSeq2seq:
      return "seq2seq";
    case Arch::kLstm:
      return "lm, classify or ctc";
    case Arch::kRnn:
    case Arch::kCnn:
      break;
  }
  return "lm or classify";
}

bool CanLearn(Arch arch, Task task) {
  const bool earlier = arch > Arch::kSeq2seq;
  switch (task) {
    case Task::kLm:
      return arch == Arch::kDecoder || earlier;
    case Task::kClassify:
      return arch == Arch::kEncoder || earlier;
    case Task::kSeq2seq:
      return arch == Arch::kSeq2seq;
    case Task::kImage:
      return arch == Arch::kDecoder;
    case Task::kCtc:
      return arch == Arch::kEncoder || arch == Arch::kLstm;
    case Task::kDerived:
      break;
  }
  return false;
}

// A size that one task needs and the others do not have.
void CheckOwnSize(const ModelConfig& config, const char* key, int64_t size,
                  bool needed, int64_t least) {
  if (needed ? size >= least : size == 0) return;
  RefuseKey(key,
            StrCat(needed ? StrCat(least, " or more") : std::string("0"),
                   " for task '", Name(config.task), "'"),
            StrCat(size));
}

void CheckTask(const ModelConfig& config) {
  const std::string arch = StrCat(" for arch '", Name(config.arch), "'");
  if (!CanLearn(config.arch, config.task)) {
    RefuseKey("task", TaskWords(config.arch) + arch, Name(config.task));
  }
  const bool classify = config.task == Task::kClassify;
  const bool ctc = config.task == Task::kCtc;
  CheckOwnSize(config, "n_classes", config.n_classes, classify || ctc, 2);
  CheckOwnSize(config, "input_dim", config.input_dim, ctc, 1);
  if (config.arch != Arch::kSeq2seq && config.n_decoder_layers != 0) {
    RefuseKey("n_decoder_layers", "0" + arch, StrCat(config.n_decoder_layers));
  }
  // Only a head over the vocabulary has a row for each row of the embedding.
  if (config.tied_head && config.task != Task::kLm &&
      config.task != Task::kSeq2seq) {
    RefuseKey("tied_head", StrCat("false for task '", Name(config.task), "'"),
              "true");
  }
}

// The length of the longest sequences that the bounds of other keys allow.
constexpr int64_t kMaxImageBytes = int64_t{1} << 24;

void CheckImage(const ModelConfig& config) {
  const bool image = config.task == Task::kImage;
  CheckOwnSize(config, "n_mixtures", config.n_mixtures, image, 1);
  CheckOwnSize(config, "image_height", config.image_height, image, 1);
  CheckOwnSize(config, "image_width", config.image_width, image, 1);
  CheckOwnSize(config, "image_channels", config.image_channels, image, 1);
  if (!image) return;
  if (config.image_channels == 2) {
    RefuseKey("image_channels", "1 or 3", "2");
  }
  if (config.ImageBytes() > kMaxImageBytes) {
    RefuseKey("image_width",
              StrCat("an image of at most ", kMaxImageBytes, " bytes"),
              StrCat(config.ImageBytes(), " bytes"));
  }
  if (config.vocab_size != 256) {
    RefuseKey("vocab_size", "256 for task 'image', whose tokens are bytes",
              StrCat(config.vocab_size));
  }
  if (config.tokenizer != TokenizerKind::kByte) {
    RefuseKey("tokenizer", "byte for task 'image'", Name(config.tokenizer));
  }
}

void CheckRecurrent(const ModelConfig& config) {
  if (!config.bidirectional) return;
  if (config.arch != Arch::kLstm || config.task == Task::kLm) {
    // Reading backwards, a language model would see what it predicts.
    RefuseKey("bidirectional",
              "false but for an lstm that classifies or labels frames",
              StrCat(Name(config.arch), ", ", Name(config.task)));
  }
  if (config.d_model % 2 != 0) {
    RefuseKey("d_model", "an even width for a bidirectional lstm",
              StrCat(config.d_model));
  }
}

// Each kind of stack requires its own causality.
void CheckCausality(const ModelConfig& config, const MixerSpec& spec) {
  if (config.arch != Arch::kEncoder && !spec.can.causal) {
    RefuseKey("attention", "a kind with a causal form (a decoder is causal)",
              spec.name);
  }
  if (config.arch != Arch::kDecoder && !spec.can.bidirectional) {
    RefuseKey("attention", "a kind that is not causal (an encoder sees all)",
              spec.name);
  }
}

// The key to change where layers rotate different numbers of channels.
const char* RotaryKey(const ModelConfig& config) {
  for (const AttentionKind kind : MixersOf(config)) {
    if (Spec(kind).rotary_key != nullptr) return Spec(kind).rotary_key;
  }
  return "positions";
}

// width: that of the first layer that rotates.
void CheckRotaryLayer(const ModelConfig& config, const ModelConfig& layer,
                      const MixerSpec& spec, int64_t width) {
  if (!spec.can.rotary && !spec.can.without_rotary) {
    RefuseKey("positions",
              "none, sinusoidal or learned where no products "
              "of queries and keys are taken",
              "rotary");
  }
  if (spec.can.rotary && layer.d_key % 2 != 0) {
    RefuseKey("d_key", "an even width for rotary positions",
              StrCat(layer.d_key));
  }
  // All tables of angles have one width.
  if (Rotates(layer) && layer.RotaryWidth() != width) {
    RefuseKey(
        RotaryKey(config),
        "one width for all layers that rotate queries and keys, and d_key "
        "where one of them has no such key",
        StrCat(width, " and ", layer.RotaryWidth()));
  }
}

// What mixers pass on is of one mixer and of one width.
void CheckPassed(const ModelConfig& config) {
  int64_t width = 0;
  const char* passing = nullptr;
  const size_t entries = std::max<size_t>(1, config.layers.size());
  for (size_t i = 0; i < entries; ++i) {
    const ModelConfig layer = LayerView(config, static_cast<int64_t>(i));
    for (const ModelConfig& view : MixerViews(layer)) {
      const MixerSpec& spec = Spec(view.attention);
      const int64_t passed = spec.passed == nullptr ? 0 : spec.passed(view);
      if (passed == 0) continue;
      if (passing == nullptr) passing = spec.name;
      if (passing != spec.name) {
        RefuseKey("layers", "one mixer that passes on rows or bounds",
                  StrCat("'", passing, "' and '", spec.name, "'"));
      }
      if (width == 0) width = passed;
      if (passed == width) continue;
      RefuseKey("layers",
                StrCat("one width of what '", spec.name, "' passes on"),
                StrCat(width, " and ", passed));
    }
  }
}

void CheckMixers(const ModelConfig& config) {
  const bool rotary = config.positions == Positions::kRotary;
  const int64_t width = rotary ? config.RotaryWidth() : 0;
  bool rotated = false;  // any layer's queries and keys
  const size_t entries = std::max<size_t>(1, config.layers.size());
  for (size_t i = 0; i < entries; ++i) {
    const ModelConfig layer = LayerView(config, static_cast<int64_t>(i));
    for (const ModelConfig& view : MixerViews(layer)) {
      const MixerSpec& spec = Spec(view.attention);
      rotated |= Rotates(view);
      if (rotary) CheckRotaryLayer(config, view, spec, width);
      CheckCausality(config, spec);
      if (spec.check != nullptr) spec.check(view);
    }
  }
  if (rotary && !rotated) {
    RefuseKey("positions",
              StrCat("none, sinusoidal or learned for attention '",
                     LayersText(config), "'"),
              "rotary");
  }
  if (config.arch != Arch::kSeq2seq) return;
  const ModelConfig cross = CrossView(config);
  const MixerSpec& spec = Spec(cross.attention);
  if (spec.check != nullptr) spec.check(cross);
}

void CheckPositions(const ModelConfig& config) {
  const bool concat = config.position_combine == PositionCombine::kConcat;
  if (concat && config.positions != Positions::kSinusoidal) {
    RefuseKey("position_combine", "'concat' with sinusoidal positions only",
              StrCat("positions '", Name(config.positions), "'"));
  }
  if (concat && config.d_model % 2 != 0) {
    RefuseKey("d_model", "an even width for position_combine 'concat'",
              StrCat(config.d_model));
  }
  if (config.tied_head && config.EmbeddingWidth() != config.d_model) {
    RefuseKey("tied_head", "false with position_combine 'concat'", "true");
  }
  if (config.positions != Positions::kRotary) return;
  // Each is one more table of angles.
  constexpr size_t kMostBases = 8;
  if (config.rotary_bases.size() > kMostBases) {
    RefuseKey("layers",
              StrCat("at most ", kMostBases, " bases of rotary frequencies"),
              StrCat(config.rotary_bases.size()));
  }
  CheckRotaryScaling("rotary_", config.rotary_base, config.Scaling());
}

}  // namespace

void CheckStrictKeys(const ModelConfig& config) {
  for (const ConfigField& field : ConfigFields()) {
    const auto* own = std::get_if<OwnField>(&field.kind);
    if (own == nullptr || !own->key->strict) continue;
    const OwnValue value = own->Get(config), usual = DefaultOf(*own->key);
    if (value == usual || ReadsSection(config, field.section)) continue;
    const auto text = [&](const OwnValue& one) {
      const auto* real = std::get_if<double>(&one);
      return real != nullptr ? StrCat(*real) : TextOf(*own->key, one);
    };
    RefuseKey(
        field.name,
        config.HasAttention()
            ? StrCat(text(usual), " for attention '", LayersText(config), "'")
            : StrCat(text(usual), " for arch '", Name(config.arch), "'"),
        text(value));
  }
}

void CheckCombinations(const ModelConfig& config) {
  CheckTask(config);
  CheckImage(config);
  CheckRecurrent(config);
  if (!config.HasAttention()) return;
  CheckPositions(config);
  CheckFeedForward(config);
  CheckMixers(config);
  CheckPassed(config);
}

}  // namespace tarn
