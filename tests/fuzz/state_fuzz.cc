// State files, for a decoder with each type of cache and for a model with a
// source. A wrong hash is put right, as it would hide all that is checked after
// it.
#include <string>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "fuzz/tiny_model.h"
#include "runtime/session/state_file.h"

namespace tarn::fuzz {
namespace {

void UseState(const Model& model, State state) {
  std::string file;
  StringSink sink(file);
  SaveState(model, state, sink);
  Require(file.size() == StateFileBytes(model, state),
          "a file of another size");
  const Result<State> again = LoadState(model, BytesOf(file));
  Require(again.ok(), "a state that cannot be read again");
  Require(again.value() == state, "another state is read again");
  ++Accepted();
  std::vector<float> logits(static_cast<size_t>(model.n_outputs()));
  model.Step(state, 'a', logits.data());
}

void LoadFile(const Model& model, std::string file) {
  for (int seals = 0;; ++seals) {
    // A copy of exactly these bytes: reading past them is found.
    const std::vector<uint8_t> exact(file.begin(), file.end());
    Result<State> loaded = LoadState(model, exact);
    if (loaded.ok()) return UseState(model, std::move(loaded).Take());
    CheckRefusal(loaded.error());
    if (seals == 2 || !Reseal(loaded.error(), file)) return;
  }
}

}  // namespace
}  // namespace tarn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tarn;
  static const fuzz::TinyModel models[] = {
      fuzz::OpenTinyModel(),
      fuzz::OpenTinyModel(Arch::kDecoder, CacheType::kBF16),
      fuzz::OpenTinyModel(Arch::kDecoder, CacheType::kInt8),
      fuzz::OpenTinyModel(Arch::kSeq2seq)};
  for (const fuzz::TinyModel& model : models) {
    fuzz::Try([&] {
      fuzz::LoadFile(model.loaded.model, std::string(fuzz::TextOf(data, size)));
    });
  }
  return 0;
}
