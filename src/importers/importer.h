// Models that others published, opened as they are: a directory in Hugging
// Face's form becomes a configuration and a view of its weights. Each type of
// model has one file here; a row of the table is all that others see of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "importers/published_config.h"
#include "importers/tensor_map.h"

namespace tarn {

/// The most that a size of a published model may be.
inline constexpr int64_t kMostSize = int64_t{1} << 24;

/// What an importer writes into a config.json: key by key, in order.
using PublishedKeys = nlohmann::ordered_json;

/// One type of published model. All functions throw FormatError.
struct Importer {
  const char* model_type;  // of config.json
  /// The configuration, not finished yet; all keys are read or ignored.
  ModelConfig (*config)(PublishedConfig& published);
  /// The tensors of the finished configuration.
  void (*tensors)(const ModelConfig& config, PublishedTensors& from,
                  ImportedTensors& to);
  /// The way back, which not all types have: the class that reads the model,
  /// and the keys of a configuration. It writes what the type can express and
  /// refuses nothing: reading the keys again must give the configuration.
  /// `tensors` must then give the shapes of what it cuts.
  const char* architecture = nullptr;
  void (*publish)(const ModelConfig& config, PublishedKeys& to) = nullptr;
  /// The key that counts the layers of an extra prediction head, in types whose
  /// `tensors` adds one (AddMtp).
  const char* mtp_key = nullptr;
};

/// The rows of all files.
const std::vector<Importer>& Importers();
/// The finished configuration of a type; all keys are read. Throws Error.
ModelConfig ReadPublished(const Importer& row, PublishedConfig& published);

/// Options of an entry of the pattern of layers.
using LayerOptions = std::vector<std::pair<std::string, std::string>>;

/// Options of the Mamba-2 layers of a hybrid with `mamba_n_heads` and its like,
/// and the keys that all of them share, which it sets in `config`. inner:
/// channels of a layer.
LayerOptions ReadMamba2(PublishedConfig& from, int64_t inner,
                        ModelConfig& config);
/// Sets whether the products of Mamba's mixers have biases; names: the keys of
/// the file for these biases and for that of the convolution.
void ReadMambaBiases(PublishedConfig& from, const char* products,
                     const char* convolution, ModelConfig& config);
/// Sets the limits of the steps: those of time_step_limit.
void ReadStepLimits(PublishedConfig& from, ModelConfig& config);
/// And back.
void PublishStepLimits(const ModelConfig& config, PublishedKeys& to);

/// Factors of the rows that a Mamba-2 mixer reads, of those of its first
/// product, and of the last product.
struct Mamba2Factors {
  float in = 1, gate = 1, values = 1, keys = 1, queries = 1, steps = 1, out = 1;
};
/// The tensors of a Mamba-2 mixer under `own`, from those under `theirs`: what
/// every hybrid with such layers has. config: as the layer sees it.
void AddMamba2(const ModelConfig& config, const std::string& own,
               const std::string& theirs, PublishedTensors& from,
               ImportedTensors& to, const Mamba2Factors& factors = {});
/// The same of a Mamba-1 mixer.
void AddMamba1(const ModelConfig& config, const std::string& own,
               const std::string& theirs, PublishedTensors& from,
               ImportedTensors& to);

/// The stack of a hybrid with the parts of Llama, but for its mixers and
/// positions: norms, heads of attention, a gated feed-forward part.
ModelConfig ReadHybrid(PublishedConfig& from, double norm_eps);
/// Its tensors, but those of the mixers and feed-forward parts.
void AddAroundHybrid(const ModelConfig& config, PublishedTensors& from,
                     ImportedTensors& to);

/// What the class of a type has where its file does not say.
struct RotaryDefaults {
  /// max_position_embeddings, for which scaled frequencies were trained where
  /// the file names no original number. 0: the file has to.
  int64_t positions = 0;
  /// The fraction of a head's channels that rotate; without it all do, and the
  /// file cannot say.
  std::optional<double> part = std::nullopt;
  double base = 10000.0;
};
/// Rotary positions: rope_parameters of transformers 5, or the keys of 4.
/// config: its d_key is known.
void ReadRotary(PublishedConfig& from, ModelConfig& config,
                const RotaryDefaults& usual);
/// The keys of a model without partial rotation, as transformers 5 writes them.
void PublishRotary(const ModelConfig& config, PublishedKeys& to);
/// With the part that rotates; view: of a layer of softmax attention.
void PublishPartialRotary(const ModelConfig& view, PublishedKeys& to);
/// The same of a model with layers of full attention, whose frequencies become
/// the model's, and layers with a window. Returns the base of the latter, 0:
/// the model's. sliding_key: of a file of transformers 4; null: rope_theta.
double ReadRotaryByType(PublishedConfig& from, ModelConfig& config,
                        const RotaryDefaults& usual, const char* sliding_key,
                        double sliding_base);
/// The tensors of a softmax mixer in Llama's form. config: as the layer sees
/// it.
void AddSoftmax(const ModelConfig& config, const std::string& own,
                const std::string& theirs, PublishedTensors& from,
                ImportedTensors& to);

/// One mixer of tarn for each layer, by the list `layer_types` or, where the
/// file has none, by `full`: whether a layer has softmax attention. recurrent:
/// the mixer of the others. Options are the caller's to add.
void ReadHybridLayers(PublishedConfig& from, ModelConfig& config,
                      const char* recurrent,
                      const std::function<bool(int64_t layer)>& full);

/// The kernels [C, W] of a short convolution over queries, keys and values,
/// from one tensor [C, 1, W] or from three, which transformers stacks and,
/// where it writes them, cuts into equal parts. config: as the layer sees it.
WeightPart KernelsOf(const ModelConfig& config, const std::string& theirs,
                     PublishedTensors& from);

/// What a type of model has where its config.json does not say; sizes of 0: it
/// has to say, or they follow from others.
struct SoftmaxDefaults {
  int64_t vocab_size = 0, heads = 0, key_heads = 0, head_dim = 0;
  double norm_eps = 1e-6;
  bool tied = false;
};
/// A stack in Llama's form without its positions: sizes, norms, a SwiGLU.
ModelConfig ReadSoftmaxStack(PublishedConfig& from,
                             const SoftmaxDefaults& usual = {});
/// Biases of all four products of attention, and of the feed-forward part.
void ReadBiases(PublishedConfig& from, ModelConfig& config);

/// Adds one part of a layer. view: the configuration as the layer sees it; own,
/// theirs: before the names of the layer's tensors.
using AddPart = std::function<void(
    const ModelConfig& view, const std::string& own, const std::string& theirs,
    PublishedTensors& from, ImportedTensors& to)>;
/// What the tensors of a stack in Llama's form are called.
struct SoftmaxNames {
  std::string root = "model.", head = "lm_head.weight", last_norm = "norm";
  std::vector<std::pair<const char*, const char*>> norms = {
      {"norm1", "input_layernorm"}, {"norm2", "post_attention_layernorm"}};
  AddPart mixer = nullptr, unit = nullptr;  // null: Llama's
};
void AddSoftmaxStack(const ModelConfig& config, const SoftmaxNames& form,
                     PublishedTensors& from, ImportedTensors& to);

/// Reads the keys of an extra prediction head.
void ReadMtpKeys(PublishedConfig& from);
/// Adds the tensors of the head (MtpShapes) from those under "mtp.", where the
/// file has such and its configuration says that they are one layer that shares
/// the model's embedding; others are skipped (WhyNoMtp). form: of the model,
/// whose layers the head's is like. absent: the layers where no key counts
/// them.
void AddMtp(const ModelConfig& config, const SoftmaxNames& form, int64_t absent,
            PublishedTensors& from, ImportedTensors& to);

/// What published files call the three matrices of a gated unit.
struct GatedUnitNames {
  const char *gate, *up, *down;
};
inline constexpr GatedUnitNames kProjNames = {"gate_proj", "up_proj",
                                              "down_proj"};
/// And the two of one without a gate.
inline constexpr GatedUnitNames kPlainNames = {"up_proj", nullptr, "down_proj"};
/// The tensors of a gated unit without biases.
void AddGatedUnit(const std::string& own, const std::string& theirs,
                  const GatedUnitNames& names, PublishedTensors& from,
                  ImportedTensors& to);
/// The experts of a mixture, under `own` + "experts.", from tensors of all of
/// them ("gate_up_proj", "down_proj" under `theirs`) or from those of each
/// ("0.gate_proj.weight" ...), what they read and give times factors. config:
/// as the layer sees it.
void AddExperts(const ModelConfig& config, const std::string& own,
                const std::string& theirs, const GatedUnitNames& names,
                PublishedTensors& from, ImportedTensors& to,
                float in_factor = 1.0f, float out_factor = 1.0f);
/// The tensors of LFM's gated short convolution. config: as the layer sees it.
void AddShortConv(const ModelConfig& config, const std::string& own,
                  const std::string& theirs, PublishedTensors& from,
                  ImportedTensors& to);
/// The tensor, times a factor.
WeightPart Times(const WeightPart& part, float factor);

std::vector<Importer> SoftmaxImporters();          // llama.cc
std::vector<Importer> WindowImporters();           // windows.cc
std::vector<Importer> GptImporters();              // gpt.cc
std::vector<Importer> MambaImporters();            // mamba.cc
std::vector<Importer> GraniteImporters();          // granite_hybrid.cc
std::vector<Importer> FalconImporters();           // falcon_h1.cc
std::vector<Importer> HybridImporters();           // mamba_hybrids.cc
std::vector<Importer> NemotronImporters();         // nemotron_h.cc
std::vector<Importer> QwenImporters();             // qwen_hybrid.cc
std::vector<Importer> DeltaImporters();            // delta_hybrid.cc
std::vector<Importer> MinimaxImporters();          // minimax.cc
std::vector<Importer> KimiImporters();             // kimi.cc
std::vector<Importer> FlashDeltaImporters();       // flash/flash_delta.cc
std::vector<Importer> FlashDecayImporters();       // flash/flash_decay.cc
std::vector<Importer> FlashRwkvImporters();        // flash/flash_rwkv.cc
std::vector<Importer> FlashNormLinearImporters();  // flash_norm_linear.cc
std::vector<Importer> LfmImporters();              // lfm.cc
std::vector<Importer> Lfm3Importers();             // lfm3.cc
std::vector<Importer> GriffinImporters();          // griffin.cc
std::vector<Importer> XlstmImporters();            // xlstm.cc

}  // namespace tarn
