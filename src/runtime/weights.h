// The weights of a model as the forward pass reads them: checked against the
// configuration, then packed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/error.h"
#include "core/safetensors.h"
#include "kernels/matmul/packed_matrix.h"

namespace tarn {

struct NormWeights {
  std::vector<float> weight, bias;  // [d_model]
};

struct LayerWeights {
  // Query, key and value projections in one matrix: rows [0, H K) are queries,
  // [H K, 2 H K) keys, the other H V values. One product serves all three.
  PackedMatrix qkv;      // [H (2 K + V), d_model]
  PackedMatrix out;      // [d_model, H V]
  PackedMatrix linear1;  // [d_ff, d_model]
  PackedMatrix linear2;  // [d_model, d_ff]
  NormWeights norm1, norm2;
};

struct Weights {
  PackedMatrix embedding;        // [vocab, EmbeddingWidth]; tied: also the head
  std::vector<float> positions;  // learned: [max_positions, d_model]
  std::vector<LayerWeights> layers;
  NormWeights norm;   // final_norm only
  PackedMatrix head;  // [vocab, d_model], untied only
  int64_t parameters = 0;
  int64_t bytes = 0;  // as held, padding included

  const PackedMatrix& Head(const ModelConfig& config) const {
    return config.tied_head ? embedding : head;
  }
};

/// Compares the file with WeightShapes(config): every tensor there with its
/// shape (any dtype the reader knows), nothing else. Else a FormatError in one
/// line: file, tensor, byte offset, expected, found; of missing tensors the
/// first eight. Allocates in proportion to the file's own list of tensors,
/// whatever sizes the configuration claims.
std::optional<Error> CheckWeights(const std::string& path,
                                  const SafetensorsFile& file,
                                  const ModelConfig& config);

/// Packs the tensors of a checked file. Matrices are held as `dtype` (kF32, or
/// kBF16 rounded to nearest even); biases, norms and the position table as
/// float32.
Weights PackWeights(const SafetensorsFile& file, const ModelConfig& config,
                    DType dtype);

}  // namespace tarn
