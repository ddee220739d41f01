// What a model holds and what attention costs, by formula: X. Wang,
// "Transformer" (2023), made exact. H heads of widths E (keys), M (values) and
// C (features), D = d_model, F = d_ff, N tokens. All functions are pure and
// take O(1) time; a multiply-add counts as 2 FLOP.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

/// Trained numbers by part of the model; buffers are not counted.
struct ParameterParts {
  int64_t embedding = 0;  // of tokens; of frames, their projection
  int64_t positions = 0;  // learned tables
  int64_t attention = 0;  // projections, tables of aft-full
  int64_t feed_forward = 0;
  int64_t norms = 0;
  int64_t recurrent = 0;  // rnn, lstm; convolutions of a cnn
  int64_t head = 0;       // a tied head has its bias only
  int64_t Total() const {
    return embedding + positions + attention + feed_forward + norms +
           recurrent + head;
  }
};
/// An encoder layer has D(2HE + HM) + 2HE + HM + HMD + D numbers in attention,
/// 2DF + F + D in its feed-forward part, 4D in norms; a decoder layer one
/// attention and 2D more. Throws what FinishConfig throws.
ParameterParts CountParameterParts(const ModelConfig& config);

/// The textbook's count for one block with F = 4D and HM = HE = D and a table
/// of `embeddings` rows: 12 D^2 + N D, which leaves out the 13 D of biases and
/// norms.
int64_t TextbookParameters(int64_t d_model, int64_t embeddings);

/// Widths of one head.
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
/// linear with the model's map; ArgumentError for other architectures and
/// n < 1.
TokenScaling ScalingAt(const ModelConfig& config, int64_t n);

}  // namespace tarn
