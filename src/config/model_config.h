// One ModelConfig describes a model for the trainer and the runtime; the same
// words are the keys of config.json and the flags of `tarn train`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/feed_forward_spec.h"
#include "config/mixer_spec.h"
#include "config/own_key.h"
#include "core/error.h"
#include "core/norm_kind.h"
#include "core/rotary_scaling.h"

namespace tarn {

enum class Arch { kDecoder, kEncoder, kSeq2seq, kRnn, kLstm, kCnn };
// kDerived stands for "FinishConfig works it out" and never occurs in a file.
// kImage: the bytes of a picture as one sequence. kCtc: labels of frames.
enum class Task { kDerived = -1, kLm, kClassify, kSeq2seq, kImage, kCtc };
// The number of a mixer in the registry (mixer_spec.h; MixerKind gives that of
// a name). Causality follows from the stack: decoders are causal, encoders are
// not.
enum class AttentionKind : int {};
// Of cross attention: "FinishConfig works it out".
inline constexpr AttentionKind kDerivedMixer{-1};
enum class Positions { kNone, kSinusoidal, kLearned, kRotary };
enum class PositionCombine { kAdd, kConcat };  // "add", "concat"
enum class RotaryPlace { kBefore, kAfter };    // of the feature map
// Of each residual sum: norm(x + f(x)), x + f(norm(x)), x + norm(f(x)), the
// last two at once, x + f(x); "post", "pre", "after", "both", "none".
enum class Norm { kPost, kPre, kAfter, kBoth, kNone };
// The number of a feed-forward part in its registry (feed_forward_spec.h;
// FeedForwardOf gives that of a name).
enum class FeedForwardKind : int {};
enum class FeedForwardBias { kAuto, kAll, kNone };  // "auto", "all", "none"
// "relu", the exact GELU "gelu", its form with a tanh "gelu-tanh".
enum class Activation { kRelu, kGelu, kGeluTanh };
// "byte", ...
enum class TokenizerKind { kByte, kChar, kBpe, kWorld, kIds, kUnigram };

/// One entry of the pattern of layers: a mixer and the keys in which it differs
/// from the model's own, in the order of the table of keys, as text; its
/// feed-forward part and the place of its norms may be among them. A parallel
/// mixer has its mixers' keys in `branches`, which are empty where no mixer has
/// any; the layer's own keys, as its feed-forward part, are in `options`.
struct LayerConfig {
  AttentionKind attention{};
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<LayerConfig> branches = {};
  bool operator==(const LayerConfig&) const = default;
};

/// A std::vector of entries whose copy is O(1). What changes a list that a copy
/// shares first copies it: of a list that is being changed through references,
/// make no copy. Thread-safe as a std::vector is.
class LayerPattern {
 public:
  using Entries = std::vector<LayerConfig>;
  using value_type = LayerConfig;

  LayerPattern() = default;
  LayerPattern(Entries entries) {  // NOLINT: implicit
    if (!entries.empty()) {
      entries_ = std::make_shared<Entries>(std::move(entries));
    }
  }
  LayerPattern(std::initializer_list<LayerConfig> entries)
      : LayerPattern(Entries(entries)) {}

  bool empty() const { return size() == 0; }
  size_t size() const { return entries_ == nullptr ? 0 : entries_->size(); }
  Entries::const_iterator begin() const { return Read().begin(); }
  Entries::const_iterator end() const { return Read().end(); }
  const LayerConfig& operator[](size_t i) const { return Read()[i]; }
  const LayerConfig& front() const { return Read().front(); }
  const LayerConfig& back() const { return Read().back(); }
  bool operator==(const LayerPattern& other) const {
    return entries_ == other.entries_ || Read() == other.Read();
  }

  Entries::iterator begin() { return Own().begin(); }
  Entries::iterator end() { return Own().end(); }
  LayerConfig& operator[](size_t i) { return Own()[i]; }
  LayerConfig& front() { return Own().front(); }
  LayerConfig& back() { return Own().back(); }
  void clear() { entries_.reset(); }
  void resize(size_t count) { Own().resize(count); }
  void pop_back() { Own().pop_back(); }
  void push_back(LayerConfig entry) { Own().push_back(std::move(entry)); }
  LayerConfig& emplace_back() { return Own().emplace_back(); }

 private:
  const Entries& Read() const {
    static const Entries none;
    return entries_ == nullptr ? none : *entries_;
  }
  Entries& Own() {
    if (entries_ == nullptr) {
      entries_ = std::make_shared<Entries>();
    } else if (entries_.use_count() > 1) {
      entries_ = std::make_shared<Entries>(*entries_);
    }
    return *entries_;
  }

  std::shared_ptr<Entries> entries_;  // null: none
};

/// One model. By `arch`: token embedding, positions, causal stack, optional
/// final norm, head (decoder); the same with a stack that sees everything and a
/// head on the mean (encoder); both stacks and cross attention (seq2seq); or
/// one of the earlier models (rnn, lstm, cnn), which read none of the keys of
/// attention, norms and positions. Each field but `own` is a key of config.json
/// with its default.
struct ModelConfig {
  int64_t vocab_size = 256;
  int64_t d_model = 128;
  int64_t n_layers = 4;
  int64_t n_heads = 4;
  int64_t d_key = 0;          // per head; 0 in memory before FinishConfig
  int64_t d_value = 0;        // per head; the same
  int64_t d_ff = 0;           // 0 before FinishConfig: 4 * d_model
  AttentionKind attention{};  // the first mixer of the registry
  Positions positions = Positions::kLearned;
  PositionCombine position_combine = PositionCombine::kAdd;
  int64_t max_positions = 1024;  // rows of the learned table
  RotaryPlace rotary_place = RotaryPlace::kBefore;
  double rotary_base = 10000.0;
  Norm norm = Norm::kPre;
  bool final_norm = true;
  double norm_eps = 1e-5;
  Activation activation = Activation::kGelu;
  double dropout = 0.0;  // training only
  bool tied_head = false;
  TokenizerKind tokenizer = TokenizerKind::kByte;
  // Format version 2 adds the rest.
  Arch arch = Arch::kDecoder;
  Task task = Task::kDerived;    // lm, classify (encoder), seq2seq
  int64_t n_classes = 0;         // classify, ctc: 2 or more; otherwise 0
  int64_t n_decoder_layers = 0;  // seq2seq, 0: n_layers; otherwise 0
  // The layers' mixer where all have the same one and it reads a memory, else
  // the registry's choice for that.
  AttentionKind cross_attention = kDerivedMixer;
  bool bidirectional = false;  // lstm, classify or ctc
  int64_t kernel_size = 3;     // cnn
  // Format version 3 adds the rest.
  int64_t n_mixtures = 0;      // image: logistics of a byte, 0: 10; otherwise 0
  int64_t image_height = 0;    // image: 1 or more; otherwise 0
  int64_t image_width = 0;     // the same
  int64_t image_channels = 0;  // image: 1 or 3; otherwise 0
  int64_t input_dim = 0;       // ctc: numbers of a frame; otherwise 0
  // Format version 4 adds the rest, and sections.
  NormKind norm_kind = NormKind::kLayer;
  FeedForwardKind feed_forward{};  // the first part of the registry
  /// The pattern of a stack of mixed layers, repeated over its depth; empty
  /// where all layers are alike, whose mixer is then `attention` (otherwise
  /// FinishConfig sets `attention` to the first entry's).
  LayerPattern layers;
  /// Keys that mixers registered (own_key.h) and that are not at their
  /// defaults: read them by KeyOf, set them by SetKey.
  std::map<std::string, OwnValue, std::less<>> own;
  // Rotary positions beyond the length of the training (core/rotary_scaling.h):
  // a section that a file holds only where there is a scaling.
  RotaryScalingKind rotary_scaling = RotaryScalingKind::kNone;
  double rotary_factor = 1.0;
  int64_t rotary_original_positions = 0;
  double rotary_low = 1.0;
  double rotary_high = 0.0;
  double rotary_magnitude = 0.0;
  bool rotary_truncate = true;
  // Factors, norms and biases that few models have: a section that a file holds
  // only where one of them has another value.
  double embedding_factor = 1.0;  // of the token embedding's rows
  double residual_factor = 1.0;   // of each part before it is added
  double logit_factor = 1.0;
  double logit_softcap =
      0.0;                   // c: logits are c tanh(logit / c); 0: as they are
  double norm_offset = 0.0;  // what norms add to their weight
  double branch_factor = 1.0;  // of what a parallel mixer's mixers give
  bool input_norm = false;     // of what the first layer reads
  // Both parts of a layer read the layer's rows: x + f(norm1(x)) + g(norm2(x)).
  bool parallel_residual = false;
  FeedForwardBias feed_forward_bias = FeedForwardBias::kAuto;  // auto: of mlp
  bool head_bias = true;

  /// FinishConfig's: the bases of rotary frequencies that layers have instead
  /// of rotary_base, in order of appearance.
  std::vector<double> rotary_bases = {};
  /// FinishConfig's: the first layer whose mixer passes rows on
  /// (MixerSpec::passed); -1: none.
  int64_t first_passing = -1;
  /// In the view of a layer, or of one of its parallel mixers: whether its
  /// mixer reads rows that an earlier one passes on.
  bool reads_passed = false;
  /// In the view of a layer with a parallel mixer: what each of its mixers
  /// sees. Empty elsewhere.
  std::vector<ModelConfig> branches = {};

  bool operator==(const ModelConfig&) const = default;
  /// Width of the token embedding: d_model, or d_model / 2 when sinusoidal
  /// positions are concatenated.
  int64_t EmbeddingWidth() const;
  /// Channels of a query or key that rotary positions rotate, in all layers.
  int64_t RotaryWidth() const;
  /// How their frequencies are scaled.
  RotaryScaling Scaling() const {
    return {rotary_scaling, rotary_factor, rotary_original_positions,
            rotary_low,     rotary_high,   rotary_magnitude,
            rotary_truncate};
  }
  /// Whether layers add their parts as they are, one after the other, with
  /// norms before or after the sums, the same in all: what the fused kernels of
  /// layers compute.
  bool HasPlainSums() const;
  /// Whether the model is made of attention layers.
  bool HasAttention() const { return arch <= Arch::kSeq2seq; }
  /// Whether the model reads frames of numbers (ctc) in place of tokens.
  bool ReadsFrames() const { return task == Task::kCtc; }
  /// Rows of the head: n_classes (classify, ctc), 3 * n_mixtures (image: the
  /// weights, means and log-scales of a mixture), else vocab_size.
  int64_t Outputs() const {
    if (task == Task::kImage) return 3 * n_mixtures;
    return task == Task::kClassify || task == Task::kCtc ? n_classes
                                                         : vocab_size;
  }
  /// Bytes of one image, row by row, the channels of a pixel side by side: the
  /// sequence of task image. 0 for other tasks.
  int64_t ImageBytes() const {
    return image_height * image_width * image_channels;
  }
};

/// Fills derived sizes, task, cross attention and what mixers derive, and
/// checks every range and combination (rotary needs an even d_key, concat an
/// even d_model and sinusoidal positions, a tied head needs EmbeddingWidth() ==
/// d_model,
/// ...). Bounds the totals as well: 2^40 parameters, 2^30 values of recurrent
/// state. Keys that no part of the model reads return to their defaults. Throws
/// ArgumentError naming the key, with the config unchanged.
void FinishConfig(ModelConfig& config);
/// The same on a copy; of the defaults where nothing is given.
ModelConfig Finished(ModelConfig config = {});

/// A finished configuration as layer i of a stack sees it: `attention` is its
/// mixer, the pattern's options are in their keys, `layers` is empty, and
/// `branches` are the views of its mixers where it has parallel ones.
ModelConfig LayerView(const ModelConfig& config, int64_t i);
/// What each mixer of a layer's view sees: the view itself, or its branches.
std::vector<ModelConfig> MixerViews(const ModelConfig& layer);
/// Before the names of a parallel mixer's tensors, in front of the mixer's own:
/// "branches.0."; and the name of a tensor of its state, "0.keys", which lives
/// as long as the program.
std::string BranchPrefix(size_t branch);
const char* BranchTensor(size_t branch, std::string_view name);
/// The same configuration as the layer's cross attention sees it.
ModelConfig CrossView(const ModelConfig& config);
/// The different mixers of a model's self attention, in order of appearance;
/// those of parallel mixers by themselves.
std::vector<AttentionKind> MixersOf(const ModelConfig& config);
/// The different feed-forward parts of a model's layers.
std::vector<FeedForwardKind> FeedForwardsOf(const ModelConfig& config);
/// Whether some part of a finished model reads the keys of a section.
bool ReadsSection(const ModelConfig& finished, std::string_view section);
/// Gives `to` the keys of `from` that act in training only: a run may change
/// them on a model that is given.
void CopyTrainingKeys(const ModelConfig& from, ModelConfig& to);
/// The pattern as text, "linear,local:local_context=64,full" or
/// "mamba2:n_heads=8+full:window=64,full", and back. Throws ArgumentError for
/// an unknown mixer or key. Ranges are not checked.
std::string LayersText(const ModelConfig& config);
std::vector<LayerConfig> LayersFromText(std::string_view text);

/// Strict JSON (see core/json.h) to config and back. Unknown, missing or
/// out-of-range keys are FormatError naming the key. `format_version` is 4:
/// sections, of which a file holds those that the model reads, and the pattern
/// of layers. Text written by ConfigToJson is
/// stable, byte for byte, and holds the derived sizes; it throws what
/// FinishConfig throws.
Result<ModelConfig> ConfigFromJson(std::string_view json);
/// The same for an object written by hand: keys side by side or in sections,
/// absent ones (format_version among them) take their defaults, and sizes may
/// be 0 for "work it out".
Result<ModelConfig> ConfigFromPartialJson(std::string_view json);
std::string ConfigToJson(const ModelConfig& config);
/// All keys side by side, for programs that look keys up by name, and "layers",
/// the pattern as ConfigToJson writes it, where there is one.
std::string ConfigToFlatJson(const ModelConfig& config);
/// Those keys alone that some part of the model reads, arch and task first:
/// what a person wants to see.
std::string ReadKeysToJson(const ModelConfig& config);

/// Sets one field from text ("--d-model 256" is SetConfigField(c, "d_model",
/// "256")); throws ArgumentError with the allowed values. "layers" takes the
/// text of a pattern. No cross-checks.
void SetConfigField(ModelConfig& config, std::string_view key,
                    std::string_view value);
/// Every key of config.json but format_version, with one line of help, in file
/// order.
struct ConfigKey {
  const char* name;
  const char* help;
  std::string wanted;         // what it takes, as SetConfigField says it
  std::string value;          // where it is not given; empty: others decide it
  const char* metavar = "N";  // for a number, a word, ...
};
std::vector<ConfigKey> ConfigKeys();

const char* Name(Arch);
const char* Name(Task);           // "derived" before FinishConfig
const char* Name(AttentionKind);  // "derived" for kDerivedMixer
const char* Name(Positions);
const char* Name(PositionCombine);
const char* Name(RotaryPlace);
const char* Name(Norm);
const char* Name(FeedForwardKind);
const char* Name(Activation);
const char* Name(TokenizerKind);

/// Name and shape of every tensor the model's weight file holds, in model
/// order; docs/models.md lists the names by architecture. For a decoder:
/// `value_embedding.weight`, `pos_embedding.weight` (learned),
/// `layers.{i}.attention.{query,key,value,out}_projection.{weight,bias}`,
/// `layers.{i}.linear{1,2}.{weight,bias}`,
/// `layers.{i}.norm{1,2}.{weight,bias}` (no norm "none"),
/// `layers.{i}.norm{1,2}_after.{weight,bias}` (norm "both"),
/// `norm.{weight,bias}` (final_norm),
/// `predictor.weight` (untied), `predictor.bias` (head_bias). Task ctc has
/// `input_projection.{weight,bias}` (encoder) or nothing (lstm) in place of the
/// token embedding. Weights are [out, in] as in PyTorch. Both functions throw
/// what FinishConfig throws.
std::vector<std::pair<std::string, std::vector<int64_t>>> WeightShapes(
    const ModelConfig& config);
/// The tensors among them that need more than Precision::kGroups: embeddings
/// and the head, and what the rows of mixers and feed-forward parts list. Of
/// the architectures that have attention.
std::map<std::string, Precision> WeightPrecisions(const ModelConfig& config);
/// The extra prediction head (multi-token prediction, DeepSeek-V3,
/// arXiv 2412.19437, section 2.2) whose tensors a weight file may hold after
/// those of the model: from the model's row h at a token, after the final norm,
/// and the embedding e of the next token it makes
///   projection [embedding_norm(e); hidden_norm(h)]
/// which passes through one layer and a norm, and then through the model's own
/// head, to predict the token after that one. The layer is like the model's
/// last one that keeps rows of all tokens. Its configuration, that of a model
/// of one layer; empty for models that cannot have such a head.
std::optional<ModelConfig> MtpConfig(const ModelConfig& finished);
/// The tensors of the head, all of which a file holds or none; none where a
/// model cannot have one: `mtp.embedding_norm.*`, `mtp.hidden_norm.*`,
/// `mtp.projection.weight` [d_model, 2 d_model], `mtp.layers.0.*`,
/// `mtp.norm.*`.
std::vector<std::pair<std::string, std::vector<int64_t>>> MtpShapes(
    const ModelConfig& config);
inline constexpr std::string_view kMtpPrefix = "mtp.";
/// Whether a tensor of that name is drawn or fixed, not trained: omega,
/// log_decay, lower_bound.
bool IsBuffer(std::string_view name);

/// Numbers in tensors of these shapes, buffers left out.
int64_t TrainedNumbers(
    const std::vector<std::pair<std::string, std::vector<int64_t>>>& shapes);
/// Elements of all tensors that are trained.
int64_t ParameterCount(const ModelConfig& config);

}  // namespace tarn
