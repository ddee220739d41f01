// The runtime half of softmax attention (form.h): a cache of keys and values,
// a ring of the last ones, or rows from which they are made.
#pragma once

#include <memory>
#include <vector>

#include "mixers/softmax/form.h"
#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

namespace softmax {
std::vector<RuntimeMixerRow> RuntimeMixers();
}
/// The latent variant (runtime_latent.cc).
std::unique_ptr<RuntimeMixer> MakeLatent(const SoftmaxForm& form,
                                         MixerTensors& tensors);
/// Keys and values of a source, which a decoder reads (runtime_cross.cc).
std::unique_ptr<RuntimeCross> MakeSoftmaxCross(const ModelConfig& layer);

/// Rotates the first `width` channels of `heads` heads of `stride` floats by
/// the row [width / 2 cosines | width / 2 sines].
void RotateHeads(const float* angles, int64_t width, int64_t heads,
                 int64_t stride, float* x);

}  // namespace tarn::mixers
