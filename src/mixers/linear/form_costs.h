// What attention costs, softmax and linear, by formula: X. Wang,
// "Transformer" (2023), made exact. H heads of widths E (keys), M (values) and
// C (features), D = d_model, N tokens. All functions are pure and take O(1)
// time; a multiply-add counts as 2 FLOP.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

/// Widths of one head. Those of a model are the model's own, which a layer may
/// replace.
struct HeadWidths {
  int64_t d_key = 0, d_value = 0;
  int64_t d_feature = 0;  // C of the model's feature map
};
HeadWidths HeadWidthsOf(const ModelConfig& config);

/// FLOP of one softmax head over n tokens at once: scores and weighted sums,
/// 2 n^2 (E + M), or n (n + 1) (E + M) where a token sees itself and those
/// before it. Excludes the exponentials and divisions, of which there are n^2
/// and n M.
int64_t SoftmaxFlop(const HeadWidths& head, int64_t n, bool causal);
/// FLOP of one linear head over n tokens: S += phi(k) v^T and phi(q)^T S, 2CM
/// each; z += phi(k), C, and phi(q)^T z, 2C: n (4CM + 3C). Excludes the feature
/// map and the M divisions. A causal scan costs the same.
int64_t LinearFlop(const HeadWidths& head, int64_t n);
/// FLOP of one more token after `past` others, from the cache or the state.
int64_t SoftmaxStepFlop(const HeadWidths& head, int64_t past);
int64_t LinearStepFlop(const HeadWidths& head);

/// What one head keeps after n tokens, 4 bytes a number: keys and values,
/// 4n (E + M), or S and z, 4 (CM + C) for any n. A step reads all of it.
int64_t SoftmaxCacheBytes(const HeadWidths& head, int64_t n);
int64_t LinearStateBytes(const HeadWidths& head);

/// Tokens from which the linear form costs less, by the leading terms: whole
/// sequences 2CM / (E + M), causal ones twice that.
double CrossoverTokens(const HeadWidths& head, bool causal);
/// Past tokens from which a linear step does less arithmetic, and from which
/// its state is smaller than a cache.
double StepCrossoverTokens(const HeadWidths& head);
double MemoryCrossoverTokens(const HeadWidths& head);

/// A whole model's work per token at a length, with either attention.
struct TokenScaling {
  int64_t tokens = 0;  // N
  // FLOP per token of a sequence of N seen at once, heads included.
  double softmax_parallel_flop = 0, linear_parallel_flop = 0;
  // FLOP, and bytes of cache or state read, for the token after N others.
  int64_t softmax_step_flop = 0, linear_step_flop = 0;
  int64_t softmax_step_bytes = 0, linear_step_bytes = 0;
};
/// The costs of an encoder or decoder as if its attention were softmax or
/// linear with the model's map, of the heads that its layers and their parallel
/// mixers have; ArgumentError for other architectures and n < 1.
TokenScaling ScalingAt(const ModelConfig& config, int64_t n);

}  // namespace tarn
