// Log-mel features: what a short-time spectrum looks like to an ear.
#pragma once

#include "data/speech/mel_options.h"
#include "torch_nn/torch.h"

namespace tarn::train {

/// Triangles of height 1 between bands + 2 points equally far apart on the mel
/// scale 2595 log10(1 + f / 700) (O'Shaughnessy 1987, the form of HTK), from 0
/// to half the sample rate: [bands, transform / 2 + 1] float64.
/// warp moves a point f to warp f while that is at most 0.8 min(warp, 1) of the
/// highest frequency, and points above on a line that ends there (Jaitly and
/// Hinton 2013, section 2). A band narrower than the spectrum's step holds
/// zeros only.
torch::Tensor MelFilters(const LogMelOptions& options);

/// samples [N] float32 in [-1, 1] -> [Frames(N), bands] float32:
/// ln(1e-6 + filters |DFT(hann * frame)|^2), frame t from sample t hop on, the
/// window periodic, the transform padded with zeros. Throws ShapeError,
/// DTypeError, ArgumentError. O(N) memory; a pure function, thread-safe.
torch::Tensor LogMel(const torch::Tensor& samples,
                     const LogMelOptions& options);

/// features [T, bands] with every band's mean subtracted and divided by
/// sqrt(variance + 0.25): loudness, microphone and room drop out, and a band
/// without any change does not blow up. Means over an utterance are not causal.
torch::Tensor NormaliseUtterance(const torch::Tensor& features);

}  // namespace tarn::train
