// Small models with fixed weights, for the targets that need one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "fuzz/fuzz_input.h"
#include "runtime/session/loaded_model.h"
#include "text/template/chat_format.h"

namespace tarn::fuzz {

/// A chat template with tools, of the form that Hermes and Qwen write calls in.
extern const char kTinyTemplate[];

struct TinyModel {
  LoadedModel loaded;
  ChatFormat format;
};

/// Two layers, 16 wide, byte tokens, 256 positions: `linear` and `full`, or an
/// encoder and a decoder. Written to a temporary folder, opened and removed.
TinyModel OpenTinyModel(Arch arch = Arch::kDecoder,
                        CacheType cache = CacheType::kF32);

/// Puts the hash or fingerprint that an error asks for into the file at fault,
/// so that what is checked after it is reached. False where the error is
/// another one.
bool Reseal(const Error& error, std::string& file);

/// The files of some states and sessions of these models, by name.
std::vector<std::pair<std::string, std::string>> StateFiles();
std::vector<std::pair<std::string, std::string>> SessionFiles();

}  // namespace tarn::fuzz
