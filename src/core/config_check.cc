// Combinations of keys that make no model, by subject. Each names the key that
// is to change.
#include <algorithm>

#include "core/config_fields.h"
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

void CheckTask(const ModelConfig& config) {
  const std::string arch = StrCat(" for arch '", Name(config.arch), "'");
  const bool classify = config.task == Task::kClassify;
  const bool lm = config.task == Task::kLm;
  switch (config.arch) {
    case Arch::kDecoder:
      if (!lm) RefuseKey("task", "lm" + arch, Name(config.task));
      break;
    case Arch::kEncoder:
      if (!classify) RefuseKey("task", "classify" + arch, Name(config.task));
      break;
    case Arch::kSeq2seq:
      if (lm || classify) {
        RefuseKey("task", "seq2seq" + arch, Name(config.task));
      }
      break;
    case Arch::kRnn:
    case Arch::kLstm:
    case Arch::kCnn:
      if (!lm && !classify) {
        RefuseKey("task", "lm or classify" + arch, Name(config.task));
      }
  }
  if (classify != (config.n_classes >= 2) ||
      (!classify && config.n_classes != 0)) {
    RefuseKey("n_classes",
              StrCat(classify ? "2 or more" : "0", " for task '",
                     Name(config.task), "'"),
              StrCat(config.n_classes));
  }
  if (config.arch != Arch::kSeq2seq && config.n_decoder_layers != 0) {
    RefuseKey("n_decoder_layers", "0" + arch, StrCat(config.n_decoder_layers));
  }
  if (config.tied_head && classify) {
    RefuseKey("tied_head", "false for task 'classify'", "true");
  }
}

void CheckRecurrent(const ModelConfig& config) {
  if (!config.bidirectional) return;
  if (config.arch != Arch::kLstm || config.task != Task::kClassify) {
    // Reading backwards a language model would see what it predicts.
    RefuseKey("bidirectional", "false but for an lstm that classifies",
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
  const int64_t least = map == FeatureMap::kSmoothedRff ? 3
                        : map == FeatureMap::kFavor || map == FeatureMap::kRff
                            ? 2
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
  CheckRecurrent(config);
  CheckAttentionDropout(config);
  if (!config.HasAttention()) return;
  CheckPositions(config);
  CheckKind(config);
  CheckFeatureMap(config);
}

}  // namespace tarn
