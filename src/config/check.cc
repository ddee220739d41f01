// Combinations of keys that make no model, by subject. Each names the key that
// is to change.
#include <algorithm>

#include "config/fields.h"
#include "core/text.h"

namespace tarn {
namespace {

bool IsClustered(AttentionKind kind) {
  return kind == AttentionKind::kClustered ||
         kind == AttentionKind::kImprovedClustered;
}

bool IsAft(AttentionKind kind) {
  return kind == AttentionKind::kAftFull || kind == AttentionKind::kAftSimple;
}

// Kinds whose weights are a softmax: the ones attention dropout acts on.
bool IsSoftmax(AttentionKind kind) {
  return kind != AttentionKind::kLinear && !IsAft(kind);
}

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

// Sequences of the longest kind that other bounds of this table know.
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
    // Reading backwards a language model would see what it predicts.
    RefuseKey("bidirectional",
              "false but for an lstm that classifies or labels frames",
              StrCat(Name(config.arch), ", ", Name(config.task)));
  }
  if (config.d_model % 2 != 0) {
    RefuseKey("d_model", "an even width for a bidirectional lstm",
              StrCat(config.d_model));
  }
}

void CheckKind(const ModelConfig& config) {
  const AttentionKind kind = config.attention;
  const std::string given = Name(kind);
  // Each kind of stack asks for its own causality.
  if (config.arch != Arch::kEncoder && IsClustered(kind)) {
    RefuseKey("attention", "a kind with a causal form (a decoder is causal)",
              given);
  }
  if (config.arch != Arch::kDecoder &&
      kind == AttentionKind::kCausalImprovedClustered) {
    RefuseKey("attention", "a kind that is not causal (an encoder sees all)",
              given);
  }
  if (kind == AttentionKind::kLocal && config.local_context == 0) {
    RefuseKey("local_context", "1 or more for attention 'local'", "0");
  }
  if (IsAft(kind) && config.d_key != config.d_value) {
    RefuseKey("d_value",
              StrCat("d_key = ", config.d_key, " for attention '", given, "'"),
              StrCat(config.d_value));
  }
}

void CheckAttentionDropout(const ModelConfig& config) {
  if (!(config.attention_dropout > 0)) return;
  const bool cross = config.arch == Arch::kSeq2seq &&
                     config.cross_attention == CrossAttention::kFull;
  if (config.HasAttention() && (IsSoftmax(config.attention) || cross)) return;
  RefuseKey("attention_dropout",
            config.HasAttention()
                ? StrCat("0 for attention '", Name(config.attention), "'")
                : StrCat("0 for arch '", Name(config.arch), "'"),
            StrCat(config.attention_dropout));
}

void CheckFeatureMap(const ModelConfig& config) {
  if (!config.UsesFeatureMap()) return;
  const FeatureMap map = config.feature_map;
  const std::string named = StrCat(" for feature_map '", Name(map), "'");
  if (config.stabilise && map != FeatureMap::kFavor &&
      map != FeatureMap::kFavorPositive) {
    RefuseKey("stabilise", "false" + named, "true");
  }
  if (config.stabilise && config.denominator != Denominator::kExact) {
    RefuseKey("denominator", "exact with stabilise", Name(config.denominator));
  }
  const FeatureMapTraits& row = Traits(map);
  const int64_t least = row.features_per_column > 1
                            ? row.features_per_column + row.constant_features
                            : 0;
  if (config.n_dims < least) {
    RefuseKey("n_dims", StrCat(least, " or more", named),
              StrCat(config.n_dims));
  }
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
  if (config.d_key % 2 != 0) {
    RefuseKey("d_key", "an even width for rotary positions",
              StrCat(config.d_key));
  }
  if (IsAft(config.attention)) {
    RefuseKey("positions",
              "none, sinusoidal or learned where no products "
              "of queries and keys are taken",
              "rotary");
  }
  // The numerator sees turned features, which the kernels make of single
  // entries only.
  if (config.rotary_place == RotaryPlace::kAfter && config.UsesFeatureMap() &&
      (!IsElementwise(config.feature_map) ||
       config.denominator == Denominator::kSigned)) {
    RefuseKey("rotary_place",
              "before, but for elu1, identity, relu or relu2 with a "
              "denominator exact, compat or none",
              "after");
  }
}

}  // namespace

void CheckCombinations(const ModelConfig& config) {
  CheckTask(config);
  CheckImage(config);
  CheckRecurrent(config);
  CheckAttentionDropout(config);
  if (!config.HasAttention()) return;
  CheckPositions(config);
  CheckKind(config);
  CheckFeatureMap(config);
}

}  // namespace tarn
