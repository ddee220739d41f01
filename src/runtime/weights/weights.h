// The weights of a model as the forward pass reads them: checked against the
// configuration, then packed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "core/executor.h"
#include "kernels/matmul/weight_matrix.h"
#include "runtime/feed_forward/feed_forward.h"
#include "runtime/mixer/mixer.h"
#include "runtime/weights/model_tensors.h"
#include "runtime/weights/packer.h"
#include "runtime/weights/weight_plan.h"
#include "weights/weight_source.h"

namespace tarn {

struct NormWeights {
  std::vector<float> weight, bias;  // [d_model]; no bias in an RMS norm

  bool empty() const { return weight.empty(); }
};

/// The norms of one part of a layer, by config.norm; empty ones are not there:
/// x = closing(x + factor after(part(before(x)))).
struct PartNorms {
  NormWeights before, after, closing;
};

// Cross attention of a decoder layer. Keys and values share a matrix: both are
// products of the memory, computed once per source.
struct CrossWeights {
  WeightMatrix query;      // [H K, d_model]
  WeightMatrix key_value;  // [H (K + V), d_model], keys first
  WeightMatrix out;        // [d_model, H V]
};

struct LayerWeights {
  std::shared_ptr<const RuntimeMixer> mixer;
  std::shared_ptr<const RuntimeFeedForward> feed_forward;  // null: none
  PartNorms mixer_norms, cross_norms, feed_forward_norms;
  CrossWeights cross;  // decoders of a sequence-to-sequence model only
};

// Embedding, layers and final norm: a decoder, or an encoder.
struct StackWeights {
  WeightMatrix embedding;        // [vocab, EmbeddingWidth]
  std::vector<float> positions;  // learned: [max_positions, d_model]
  std::vector<LayerWeights> layers;
  NormWeights input_norm, norm;  // with input_norm, final_norm
};

struct Weights {
  StackWeights decoder;  // causal; empty in a classifier
  StackWeights encoder;  // reads whole sequences; empty in a language model
  WeightMatrix head;     // [vocab or n_classes, d_model], untied only
  int64_t parameters = 0;
  int64_t bytes = 0;             // as held, padding included
  std::vector<HeldTensor> held;  // in matrices, in the order of packing
  // Of the matrices that a step reads, on average and without padding.
  double bytes_per_weight = 0;

  const WeightMatrix& Head(const ModelConfig& config) const {
    return config.tied_head ? decoder.embedding : head;
  }
};

/// The tensors that a source must have: WeightShapes(config), and where it has
/// any tensor of an extra prediction head, MtpShapes(config).
std::vector<NamedShape> TensorShapes(const WeightSource& source,
                                     const ModelConfig& config);

/// Compares the source with TensorShapes: every tensor must be there
/// with its shape, in any encoding, and nothing else. Otherwise a FormatError
/// in one line: file, tensor, byte offset, expected, found; of missing tensors
/// the first eight. Allocates in proportion to the source's own list of
/// tensors, regardless of the sizes that the configuration claims.
std::optional<Error> CheckWeights(const WeightSource& source,
                                  const ModelConfig& config);

/// What PackWeights takes at most for a model of this configuration, in any
/// format up to float32's size, known before anything is read. CheckWeights
/// compares it with the size of the files.
double MostWeightBytes(const ModelConfig& config);

/// Packs the tensors of a checked source, one block of rows at a time for each
/// worker. Matrices are held as the plan says; biases, norms and the position
/// table as float32.
Weights PackWeights(const WeightSource& source, const ModelConfig& config,
                    const WeightPlan& plan, Executor& executor);

/// The format of a language model's embedding, or of an encoder's, or the one
/// that is equivalent to it (EquivalentFormat).
const WeightFormat& EmbeddingFormat(const WeightSource& source,
                                    const ModelConfig& config,
                                    const WeightPlan& plan);

/// Vectors by name that layers leave for the later ones of their stack.
using PassedVectors = std::map<std::string, std::vector<float>>;

/// The parts of a language model one at a time: all but its layers and an
/// untied head, and one of its layers. Layers are made in their order; one may
/// be made again.
StackWeights MakeDecoderEnds(ModelTensors& tensors, const ModelConfig& config);
LayerWeights MakeDecoderLayer(ModelTensors& tensors, const ModelConfig& config,
                              int64_t layer, PassedVectors& passed);
NormWeights MakeNorm(ModelTensors& tensors, const std::string& name,
                     const ModelConfig& config);

}  // namespace tarn
