// What the models of flash-linear-attention 0.6 (package `fla`) have in common:
// a stack of mixers and feed-forward parts, some layers softmax attention.
#pragma once

#include <string>

#include "importers/importer.h"
#include "importers/publish_parts.h"

namespace tarn {

inline constexpr int64_t kMostFlash = int64_t{1} << 24;

/// Sizes of the stack and keys that decide nothing; all models have them. The
/// norms are those of the class: norm_eps is its default.
ModelConfig ReadFlashStack(PublishedConfig& from, NormKind norm,
                           double norm_eps);
/// A gated unit whose width follows from `ratio`, the class's hidden_ratio,
/// where the file does not say it.
void ReadFlashUnit(PublishedConfig& from, double ratio, ModelConfig& config);
/// intermediate_size, or hidden_size times hidden_ratio (`ratio` where the file
/// has none) times `times` / `over`, rounded up to a multiple.
int64_t FlashHidden(PublishedConfig& from, double ratio, double times,
                    double over, int64_t multiple);
/// The width of a head, where all of them have hidden_size times a factor.
int64_t FlashHeadWidth(PublishedConfig& from, const char* key, double value,
                       const ModelConfig& config);
/// Heads of queries, which may share keys and values, with the widths of
/// FlashHeadWidth; numbers: the class's defaults.
void ReadFlashSharedHeads(PublishedConfig& from, int64_t heads, double expand_k,
                          double expand_v, ModelConfig& config);
/// And back: the keys of ReadFlashStack, the hidden width, `attn` of the layers
/// of softmax attention.
void PublishFlashStack(const ModelConfig& config, PublishedKeys& to);
/// The first layer's view that has none; the model's where all have some.
ModelConfig FlashView(const ModelConfig& config);
/// The layers that `attn` makes softmax attention. After all else of `config`
/// but rotary positions of the layers themselves was read.
void ReadFlashSoftmax(PublishedConfig& from, ModelConfig& config);

/// A stack with gated units whose mixer is that row of mixers/gated/form.h;
/// ratio: of ReadFlashUnit.
ModelConfig ReadFlashGated(PublishedConfig& from, const char* mixer,
                           double ratio);
/// What multiplies the normalised output: a word of `gate_activation`.
void SetFlashGate(ModelConfig& config, const char* activation);
/// That word, and back from heads of equal widths to factors.
std::string FlashGateOf(const ModelConfig& view);
void PublishFlashHeads(const ModelConfig& view, PublishedKeys& to);
void FlashGatedTensors(const ModelConfig& config, PublishedTensors& from,
                       ImportedTensors& to);

/// Fills in a layer's mixer: tensors under `own` from those under `theirs`.
using FlashMixer = void (*)(const ModelConfig& view, const std::string& own,
                            const std::string& theirs, PublishedTensors& from,
                            ImportedTensors& to);
/// All tensors of a stack with gated units.
void AddFlashStack(const ModelConfig& config, FlashMixer mixer,
                   PublishedTensors& from, ImportedTensors& to);
/// A norm with a bias, which is 0 where `norm_bias` says that it has none.
void AddFlashNorm(PublishedTensors& from, const std::string& own,
                  const std::string& theirs, ImportedTensors& to);

}  // namespace tarn
