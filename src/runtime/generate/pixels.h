// Images as sequences of bytes, row by row, channels interleaved: drawn byte by
// byte from the mixture of logistics that an image model predicts, and scored.
// The first byte of an image is not modelled: it is given, or chosen.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "runtime/model/model.h"

namespace tarn {

/// Height, width and channels of the images of a model. Throws ArgumentError
/// for a model of another task.
struct ImageShape {
  explicit ImageShape(const ModelConfig& config);
  int64_t height, width, channels;
  int64_t bytes() const { return height * width * channels; }  // ImageBytes()
};

struct ImageOptions {
  int64_t samples = 1;     // images drawn for each beginning, 1 or more
  double temperature = 1;  // of component and spread, 0 to 100; 1: the
                           // model's own, 0: the heaviest component's mean
  uint64_t seed = 0;
  int64_t batch = 0;  // images that go through the model together; 0: as many
                      // as 256 MiB of states allow, 64 at most
};

/// Called after every step with the bytes drawn so far and the bytes of the
/// whole work; false ends the work.
using ImageProgress = std::function<bool(int64_t done, int64_t total)>;

/// Draws options.samples images for each beginning.
/// given: [starts, given_len] bytes, 1 <= given_len <= bytes of an image, which
/// the images begin with, unchanged. images: [starts * samples, bytes], those
/// of one beginning together. Byte t of image i is a function of the model, of
/// the bytes before it, and of (seed, i, t): batch, thread count and the number
/// of images change no bit. Every beginning is consumed once and its state
/// copied. Returns how many images are whole: all, or fewer when `progress`
/// ended the work. Throws ArgumentError with nothing drawn; NumericError when
/// the model's parameters are not finite. Thread-safe. O(bytes) steps for
/// linear models, memory batch * state.
int64_t DrawImages(const Model& model, std::span<const uint8_t> given,
                   int64_t starts, const ImageOptions& options, uint8_t* images,
                   const ImageProgress& progress = {});

/// Negative log-likelihood of images [count, bytes] from byte `from` on, each
/// byte given all before it. nats: [count], the sum over the `bytes - from`
/// bytes of an image; divided by their number and ln 2 it is bits/dim. from: 1
/// (the first byte that is modelled) to bytes - 1. Progress counts the bytes
/// scored, and is called within an image too, so that a long one can be ended.
/// Returns how many images were scored. Throws like DrawImages. An
/// image gets the same bits in any batch and on any number of threads.
int64_t ScoreImages(const Model& model, std::span<const uint8_t> images,
                    int64_t from, double* nats,
                    const ImageProgress& progress = {});

}  // namespace tarn
