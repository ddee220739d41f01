#include "runtime/model/supported.h"

#include <algorithm>

#include "core/text.h"
#include "runtime/feed_forward/feed_forward.h"
#include "runtime/mixer/mixer.h"

namespace tarn {
namespace {

Error Unsupported(const char* key, const std::string& wanted,
                  const char* given) {
  return FormatError(StrCat("config.json: ", key),
                     wanted + " (what this runtime can run)", given);
}

std::optional<Error> CheckLayer(const ModelConfig& view) {
  for (const ModelConfig& mixer : MixerViews(view)) {
    if (FindRuntimeMixer(Name(mixer.attention)) != nullptr) continue;
    std::string names;
    for (const char* name : RuntimeMixerNames()) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return Unsupported("attention", names, Name(mixer.attention));
  }
  if (FindRuntimeFeedForward(Name(view.feed_forward)) == nullptr) {
    std::string names;
    for (const char* name : RuntimeFeedForwardNames()) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return Unsupported("feed_forward", names, Name(view.feed_forward));
  }
  for (const ModelConfig& mixer : MixerViews(view)) {
    const RuntimeMixerRow& row = *FindRuntimeMixer(Name(mixer.attention));
    if (row.check == nullptr) continue;
    if (auto error = row.check(mixer)) return error;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> CheckSupported(const ModelConfig& config) {
  if (config.task == Task::kCtc) {
    return Unsupported("task", "lm, classify, seq2seq or image",
                       Name(config.task));
  }
  if (!config.HasAttention()) {
    return Unsupported("arch", "decoder, encoder or seq2seq",
                       Name(config.arch));
  }
  const size_t entries = std::max<size_t>(1, config.layers.size());
  for (size_t i = 0; i < entries; ++i) {
    if (auto error = CheckLayer(LayerView(config, static_cast<int64_t>(i)))) {
      return error;
    }
  }
  if (config.arch != Arch::kSeq2seq) return std::nullopt;
  const ModelConfig cross = CrossView(config);
  if (auto error = CheckLayer(cross)) return error;
  if (FindRuntimeMixer(Name(cross.attention))->make_cross == nullptr) {
    return Unsupported("cross_attention", "a mixer that reads a source",
                       Name(cross.attention));
  }
  return std::nullopt;
}

}  // namespace tarn
