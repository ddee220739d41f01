// The shape of log-mel features (log_mel.h), known without computing any.
#pragma once

#include <cstdint>

namespace tarn::train {

/// Windows of 25 ms every 10 ms into 40 bands, as in most work on speech.
struct LogMelOptions {
  int64_t sample_rate = 8000;  // Hz
  int64_t bands = 40;
  double window_s = 0.025;
  double hop_s = 0.010;
  /// Augmentation: frequencies of a speaker with a vocal tract of another
  /// length (above 1: shorter), and the hop in units of hop_s (above 1:
  /// faster speech).
  double warp = 1.0;
  double speed = 1.0;

  int64_t window() const;     // samples
  int64_t hop() const;        // samples, at least 1
  int64_t transform() const;  // the power of two at or above window()
  /// Frames of `samples` samples: windows that are within them, at least one
  /// (a shorter sound is followed by silence). 0 samples: 0.
  int64_t Frames(int64_t samples) const;
};

/// Throws ArgumentError naming the field: sample_rate 1000 or more, bands 1 to
/// half the transform, warp and speed 0.5 to 2.
void CheckMelOptions(const LogMelOptions& options);

}  // namespace tarn::train
