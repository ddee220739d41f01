#include "config/feed_forward_form.h"

#include <algorithm>

#include "config/fields.h"
#include "core/text.h"

namespace tarn {
namespace {

// Names of the parts that a model of this architecture may have.
std::string PartsFor(Arch arch) {
  std::string names;
  const ModelConfig defaults;
  for (const char* name : FeedForwardNames()) {
    const FeedForwardSpec& spec = Spec(FeedForwardOf(name));
    const bool fits =
        arch == Arch::kDecoder ||
        (spec.state == nullptr && (spec.seq2seq || arch != Arch::kSeq2seq));
    if (fits) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

}  // namespace

std::vector<NamedShape> FeedForwardShapes(const ModelConfig& view) {
  return Spec(view.feed_forward).weights(view);
}

bool HasFeedForward(const ModelConfig& view) {
  return !FeedForwardShapes(view).empty();
}

int64_t FeedForwardNumbersUsed(const ModelConfig& view) {
  const FeedForwardSpec& spec = Spec(view.feed_forward);
  return spec.used != nullptr ? spec.used(view)
                              : TrainedNumbers(spec.weights(view));
}

StateSpec FeedForwardState(const ModelConfig& view) {
  const FeedForwardSpec& spec = Spec(view.feed_forward);
  return spec.state != nullptr ? spec.state(view) : StateSpec{};
}

StateSpec LayerState(const ModelConfig& view) {
  const MixerSpec& spec = Spec(view.attention);
  if (spec.state == nullptr) return {};
  StateSpec state = spec.state(view);
  for (StateTensor& tensor : FeedForwardState(view)) {
    state.push_back(std::move(tensor));
  }
  return state;
}

namespace {

void CheckParallel(const ModelConfig& view, const FeedForwardSpec& spec) {
  if (!view.parallel_residual) return;
  const auto refuse = [](const std::string& where) {
    RefuseKey("parallel_residual", StrCat("false ", where), "true");
  };
  if (view.arch == Arch::kSeq2seq) refuse("for arch 'seq2seq'");
  if (view.norm == Norm::kPost) {
    refuse("with norm 'post', under which parts read different rows");
  }
  if (spec.state != nullptr) {
    refuse(StrCat("with feed_forward '", spec.name, "', which carries a row"));
  }
}

}  // namespace

void CheckFeedForward(const ModelConfig& config) {
  const size_t entries = std::max<size_t>(1, config.layers.size());
  for (size_t i = 0; i < entries; ++i) {
    const ModelConfig view = LayerView(config, static_cast<int64_t>(i));
    const FeedForwardSpec& spec = Spec(view.feed_forward);
    if (spec.state != nullptr && config.arch != Arch::kDecoder) {
      RefuseKey("feed_forward",
                StrCat(PartsFor(config.arch), " for arch '", Name(config.arch),
                       "' (a part with a state is for a stack that reads one "
                       "way and carries it)"),
                spec.name);
    }
    if (!spec.seq2seq && config.arch == Arch::kSeq2seq) {
      RefuseKey("feed_forward",
                StrCat(PartsFor(config.arch), " for arch 'seq2seq'"),
                spec.name);
    }
    CheckParallel(view, spec);
    if (spec.check != nullptr) spec.check(view);
  }
}

}  // namespace tarn
