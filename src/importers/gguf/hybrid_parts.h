// What rows of recurrent models and hybrids have alike, in both directions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "importers/gguf/architecture.h"

namespace tarn {

/// The sizes of every stack: hidden_size, num_hidden_layers, of which the file
/// has `later` more, and whether the head is the embedding; keys that say
/// nothing are ignored. Returns the layers.
int64_t ReadGgufStack(GgufKeys& from, PublishedKeys& to, int64_t later = 0);
/// num_attention_heads and head_dim of equally wide keys and values; returns
/// the latter.
int64_t ReadGgufHeads(GgufKeys& from, PublishedKeys& to);
/// rope_parameters, with all channels of a head or, if `part`, some of them.
/// Returns the channels that rotate.
int64_t ReadGgufRotary(GgufKeys& from, int64_t head_dim, bool part,
                       PublishedKeys& to);
/// experts, those of a token, and the widths of experts and of the shared one,
/// which by llama.cpp's rule follow from that of the feed-forward part.
void ReadGgufExperts(GgufKeys& from, const char* experts, PublishedKeys& to);
/// The key of a norm's eps, as the shortest decimal number that is the file's
/// float32.
double GgufNormEps(GgufKeys& from, const char* key);

/// The keys of a Mamba-2 mixer in a hybrid, those of PublishMamba2Keys. block:
/// a layer that has one.
void ReadGgufMamba2(GgufKeys& from, int64_t block, PublishedKeys& to);
/// Its tensors, `own` in the file and `theirs` published. view: the
/// configuration as the mixer sees it.
void MoveGgufMamba2(const ModelConfig& view, const std::string& theirs,
                    const std::string& own, GgufTensors& tensors);
/// A gated unit's three products, under `theirs` with the names of most types.
void MoveGgufUnit(const std::string& theirs, const std::string& own,
                  GgufTensors& tensors);
/// The rates of a recurrence: A_log, of which the file holds -exp(A_log).
WeightPart GgufRates(GgufTensors& tensors, const std::string& name,
                     const std::vector<int64_t>& shape);
/// The matrices [rows, columns] of each expert, from those of all under one
/// name.
std::vector<WeightPart> GgufExpertParts(GgufTensors& tensors,
                                        const std::string& name,
                                        int64_t experts, int64_t rows,
                                        int64_t columns);

/// Keys of one architecture to write, named without it.
class GgufArchitectureKeys {
 public:
  GgufArchitectureKeys(const char* architecture, GgufKeyList& to)
      : prefix_(std::string(architecture) + "."), to_(to) {}
  void U32(const char* key, int64_t value) { to_.U32(prefix_ + key, value); }
  void F32(const char* key, double value) { to_.F32(prefix_ + key, value); }
  void Bool(const char* key, bool value) { to_.Bool(prefix_ + key, value); }
  void I32s(const char* key, const std::vector<int64_t>& values) {
    to_.I32s(prefix_ + key, values);
  }
  void Bools(const char* key, const std::vector<bool>& values) {
    to_.Bools(prefix_ + key, values);
  }

 private:
  const std::string prefix_;
  GgufKeyList& to_;
};

/// The published value of a key as an integer or a real number.
int64_t PublishedInteger(const GgufExport& from, const char* key);
double PublishedReal(const GgufExport& from, const char* key);
/// FormatError unless llama.cpp can run what the key says.
void RequireForGguf(bool holds, const char* key, const std::string& wanted,
                    const std::string& given);
/// The same of a key that must be false, or absent.
void RequireNotForGguf(const GgufExport& from, const char* key);
/// block_count, context_length and embedding_length. Recurrent models have no
/// longest text, and the number of the converter.
void AddGgufStack(const GgufExport& from, GgufArchitectureKeys& to);
/// Heads of attention and their rotary positions, none of which may be scaled.
void AddGgufHeads(const GgufExport& from, GgufArchitectureKeys& to);
void AddGgufRotary(const GgufExport& from, int64_t channels,
                   GgufArchitectureKeys& to);
/// The keys of Mamba-2 mixers. view: the configuration as one of them sees it.
void AddGgufMamba2(const ModelConfig& view, GgufArchitectureKeys& to);

}  // namespace tarn
