// What a model holds, by formula: X. Wang, "Transformer" (2023), made exact. H
// heads of widths E (keys) and M (values), D = d_model, F = d_ff. All functions
// are pure and take O(1) time. What attention costs:
// mixers/linear/form_costs.h.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

/// Trained numbers by part of the model; buffers are not counted.
struct ParameterParts {
  int64_t embedding = 0;  // of tokens; of frames, their projection
  int64_t positions = 0;  // learned tables
  int64_t attention = 0;
  int64_t feed_forward = 0;
  int64_t feed_forward_used =
      0;  // those of them that one token's products read
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

}  // namespace tarn
