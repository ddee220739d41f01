// What rows of recurrent models and hybrids have alike, in both directions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "importers/gguf/architecture.h"
#include "importers/gguf/stack.h"

namespace tarn {

/// The key of experts, those of a token, and the widths of experts and of the
/// shared one, which by llama.cpp's rule follow from that of the feed-forward
/// part.
void ReadGgufExperts(GgufKeys& from, const char* experts, PublishedKeys& to);
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

/// The published value of a key as an integer or a real number.
int64_t PublishedInteger(const GgufExport& from, const char* key);
double PublishedReal(const GgufExport& from, const char* key);
/// FormatError unless llama.cpp can run what the key says.
void RequireForGguf(bool holds, const char* key, const std::string& wanted,
                    const std::string& given);
/// The same of a key that must be false, or absent.
void RequireNotForGguf(const GgufExport& from, const char* key);
/// The keys of Mamba-2 mixers. view: the configuration as one of them sees it.
void AddGgufMamba2(const ModelConfig& view, const std::string& architecture,
                   GgufKeyList& to);

}  // namespace tarn
