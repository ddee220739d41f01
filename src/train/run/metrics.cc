#include "train/run/metrics.h"

#include <cstdio>

#include "core/error.h"

namespace tarn::train {

Metric MetricOf(const TrainOptions& options) {
  const EvalMetric asked = options.eval_metric;
  switch (options.model.task) {
    case Task::kDerived:
    case Task::kLm:
      // Generated rows have labels at some of their places.
      if (options.generator.kind != GeneratorKind::kNone) {
        if (asked == EvalMetric::kAccuracy) return Metric::kAccuracy;
        if (asked != EvalMetric::kError) return Metric::kLoss;
        throw ArgumentError("--eval-metric",
                            "auto|loss|accuracy for generated rows", "error");
      }
      if (asked == EvalMetric::kAuto || asked == EvalMetric::kLoss) {
        return Metric::kBitsPerByte;
      }
      throw ArgumentError("--eval-metric", "auto|loss for a language model",
                          "another");
    case Task::kClassify:
      if (asked == EvalMetric::kLoss) return Metric::kLoss;
      if (asked != EvalMetric::kError) return Metric::kAccuracy;
      throw ArgumentError("--eval-metric", "auto|loss|accuracy for labels",
                          "error");
    case Task::kSeq2seq:
    case Task::kCtc:
      if (asked == EvalMetric::kLoss) return Metric::kLoss;
      if (asked != EvalMetric::kAccuracy) return Metric::kTokenErrorRate;
      throw ArgumentError("--eval-metric",
                          "auto|loss|error for targets and letters",
                          "accuracy");
    case Task::kImage:
      if (asked == EvalMetric::kAuto || asked == EvalMetric::kLoss) {
        return Metric::kBitsPerDim;
      }
      throw ArgumentError("--eval-metric", "auto|loss for images", "another");
  }
  throw ArgumentError("task", "a task of this version", "another");
}

double MetricValue(Metric metric, const StepFigures& figures) {
  switch (metric) {
    case Metric::kBitsPerByte:
      return figures.val_bits_per_byte.value();
    case Metric::kBitsPerDim:
      return figures.val_bits_per_dim.value();
    case Metric::kLoss:
      return figures.val_loss.value();
    case Metric::kAccuracy:
      return figures.val_accuracy.value();
    case Metric::kTokenErrorRate:
      return figures.val_token_error_rate.value();
  }
  throw ArgumentError("metric", "a metric of this version", "another");
}

bool IsBetter(Metric metric, double a, double b) {
  return metric == Metric::kAccuracy ? a > b : a < b;
}

std::string MetricText(Metric metric, double value) {
  char buffer[64];
  const auto text = [&](const char* format, double shown) {
    std::snprintf(buffer, sizeof buffer, format, shown);
    return std::string(buffer);
  };
  switch (metric) {
    case Metric::kBitsPerByte:
      return text("%.4f bits per byte", value);
    case Metric::kBitsPerDim:
      return text("%.4f bits/dim", value);
    case Metric::kLoss:
      return text("loss %.4f", value);
    case Metric::kAccuracy:
      return text("accuracy %.2f %%", 100 * value);
    case Metric::kTokenErrorRate:
      return text("token error rate %.2f %%", 100 * value);
  }
  return "";
}

}  // namespace tarn::train
