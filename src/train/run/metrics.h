// The one figure by which a run's best model is chosen.
#pragma once

#include <string>

#include "train/options/options.h"
#include "train/run/log.h"

namespace tarn::train {

enum class Metric {
  kBitsPerByte,
  kBitsPerDim,
  kLoss,
  kAccuracy,
  kTokenErrorRate
};

/// What --eval-metric means for the task of a finished model config. Throws
/// ArgumentError when the task has no such metric.
Metric MetricOf(const TrainOptions& options);

/// The metric among the figures of an evaluation on held-out data.
double MetricValue(Metric metric, const StepFigures& figures);

/// Whether `a` is strictly better than `b`.
bool IsBetter(Metric metric, double a, double b);

/// "2.1234 bits per byte", "2.1234 bits/dim", "accuracy 36.20 %", "token error
/// rate 8.15 %", "loss 0.1234".
std::string MetricText(Metric metric, double value);

}  // namespace tarn::train
