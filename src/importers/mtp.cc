// The extra prediction head of published models (MtpConfig): its keys and the
// names of its tensors.
#include <algorithm>
#include <iterator>

#include "config/bounds.h"
#include "core/text.h"
#include "importers/directory.h"
#include "importers/importer.h"

namespace tarn {
namespace {

constexpr const char* kRoot = "mtp.";
// Types count the layers of the head by one of these.
constexpr const char* kCounts[] = {"mtp_num_hidden_layers",
                                   "num_nextn_predict_layers"};
constexpr const char* kDedicated = "mtp_use_dedicated_embeddings";

struct MtpKeys {
  int64_t layers = 0;
  bool dedicated = false;  // a separate embedding
  const char* count = "";  // the key that was there
};

MtpKeys KeysOf(PublishedConfig& from, int64_t absent) {
  MtpKeys keys = {absent};
  for (const char* key : kCounts) {
    const int64_t layers = from.Integer(key, 0, kMaxLayers, -1);
    if (!from.Has(key)) continue;
    keys.layers = layers;
    keys.count = key;
  }
  keys.dedicated = from.Flag(kDedicated, false);
  return keys;
}

}  // namespace

void ReadMtpKeys(PublishedConfig& from) { KeysOf(from, 0); }

void AddMtp(const ModelConfig& config, const SoftmaxNames& form, int64_t absent,
            PublishedTensors& from, ImportedTensors& to) {
  PublishedConfig text = from.config().Has("text_config")
                             ? from.config().Section("text_config")
                             : from.config();
  const MtpKeys keys = KeysOf(text, from.HasUnder(kRoot) ? absent : 0);
  const std::optional<ModelConfig> head = MtpConfig(config);
  const bool has = from.writes() || from.HasUnder(kRoot);
  if (has && keys.layers == 1 && !keys.dedicated && head) {
    const std::string own = StrCat(kMtpPrefix, "layers.0.");
    const std::string theirs = StrCat(kRoot, "layers.0.");
    form.mixer(*head, own, theirs, from, to);
    form.unit(*head, own, theirs, from, to);
    for (const auto& [mine, name] : form.norms) {
      to.AddLinear(from, own + mine, theirs + name);
    }
    for (const auto& [mine, name] :
         {std::pair{"embedding_norm", "pre_fc_norm_embedding"},
          {"hidden_norm", "pre_fc_norm_hidden"},
          {"projection", "fc"},
          {"norm", "norm"}}) {
      to.AddLinear(from, StrCat(kMtpPrefix, mine), StrCat(kRoot, name));
    }
  }
  from.Skip(kRoot);
}

std::string WhyNoMtp(const ModelPath& model) {
  const Result<std::string> text = model.Read("config.json", kMaxConfigBytes);
  if (!text.ok() || !IsPublishedConfig(text.value())) return "none";
  const auto value = [&](const char* key) {
    const auto found = PublishedKey(text.value(), key, model.path());
    return found.ok() ? found.value() : nlohmann::json();
  };
  for (const char* key : kCounts) {
    const nlohmann::json layers = value(key);
    if (!layers.is_number_integer() || layers <= 1) continue;
    return StrCat("one of ", layers.dump(), " layers (", key, ")");
  }
  if (value(kDedicated) == true) {
    return StrCat("one with a separate embedding (", kDedicated, ")");
  }
  return "none";
}

std::shared_ptr<const WeightSource> WithoutMtp(
    std::shared_ptr<const WeightSource> source) {
  std::vector<WeightView::Tensor> kept;
  for (const WeightTensor& tensor : source->tensors()) {
    if (tensor.name.starts_with(kMtpPrefix)) continue;
    kept.push_back({tensor.name, WeightPart(source, tensor.name)});
  }
  if (kept.size() == source->tensors().size()) return source;
  return std::make_shared<WeightView>(source->path(), std::move(kept));
}

}  // namespace tarn
