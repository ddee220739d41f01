#include "python/accounting_module.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "config/accounting.h"
#include "config/model_config.h"
#include "core/error.h"

namespace nb = nanobind;

namespace tarn {
namespace {

using Widths = std::tuple<int64_t, int64_t, int64_t>;  // E, M, C

ModelConfig Read(const std::string& json) {
  return ConfigFromPartialJson(json).Take();
}

// Refuses what would not fit into 64 bits.
HeadWidths Head(const Widths& widths, int64_t n) {
  const auto [d_key, d_value, d_feature] = widths;
  if (d_key < 1 || d_value < 1 || d_feature < 1) {
    throw ArgumentError("head", "widths of 1 or more",
                        StrCat(d_key, ", ", d_value, ", ", d_feature));
  }
  if (n < 0) throw ArgumentError("n", "0 or more tokens", StrCat(n));
  const double tokens = static_cast<double>(n) + 1;
  const double sum = static_cast<double>(d_key) + static_cast<double>(d_value);
  const double state =
      static_cast<double>(d_feature) * (static_cast<double>(d_value) + 1);
  if (2 * tokens * tokens * sum > 9e18 || 4 * tokens * state > 9e18) {
    throw ArgumentError(
        "n", "a count that fits into 64 bits",
        StrCat(n, " tokens, widths ", d_key, ", ", d_value, ", ", d_feature));
  }
  return {d_key, d_value, d_feature};
}

nb::dict Parts(const std::string& json) {
  const ParameterParts parts = CountParameterParts(Read(json));
  nb::dict found;
  found["embedding"] = parts.embedding;
  found["positions"] = parts.positions;
  found["attention"] = parts.attention;
  found["feed_forward"] = parts.feed_forward;
  found["norms"] = parts.norms;
  found["recurrent"] = parts.recurrent;
  found["head"] = parts.head;
  found["total"] = parts.Total();
  return found;
}

nb::dict Scaling(const std::string& json, int64_t n) {
  const ModelConfig config = Read(json);
  const HeadWidths head = HeadWidthsOf(config);
  Head({head.d_key, head.d_value, head.d_feature}, n);
  const TokenScaling scaling = ScalingAt(config, n);
  nb::dict found;
  found["tokens"] = scaling.tokens;
  found["softmax_parallel_flop"] = scaling.softmax_parallel_flop;
  found["linear_parallel_flop"] = scaling.linear_parallel_flop;
  found["softmax_step_flop"] = scaling.softmax_step_flop;
  found["linear_step_flop"] = scaling.linear_step_flop;
  found["softmax_step_bytes"] = scaling.softmax_step_bytes;
  found["linear_step_bytes"] = scaling.linear_step_bytes;
  return found;
}

}  // namespace

void BindAccounting(nb::module_& m) {
  m.def("finish_config",
        [](const std::string& json) { return ConfigToFlatJson(Read(json)); });
  m.def("parameters_by_part", &Parts);
  m.def("scaling", &Scaling);
  m.def("textbook_parameters", [](int64_t d_model, int64_t embeddings) {
    constexpr int64_t kMost = int64_t{1} << 29;
    if (d_model < 1 || d_model > kMost || embeddings < 0 ||
        embeddings > kMost) {
      throw ArgumentError("d_model, embeddings", StrCat("1 and 0 to ", kMost),
                          StrCat(d_model, ", ", embeddings));
    }
    return TextbookParameters(d_model, embeddings);
  });
  m.def("head_widths", [](const std::string& json) {
    const HeadWidths head = HeadWidthsOf(Read(json));
    return Widths(head.d_key, head.d_value, head.d_feature);
  });
  m.def("softmax_flop", [](const Widths& head, int64_t n, bool causal) {
    return SoftmaxFlop(Head(head, n), n, causal);
  });
  m.def("linear_flop", [](const Widths& head, int64_t n) {
    return LinearFlop(Head(head, n), n);
  });
  m.def("softmax_step_flop", [](const Widths& head, int64_t past) {
    return SoftmaxStepFlop(Head(head, past), past);
  });
  m.def("linear_step_flop",
        [](const Widths& head) { return LinearStepFlop(Head(head, 0)); });
  m.def("softmax_cache_bytes", [](const Widths& head, int64_t n) {
    return SoftmaxCacheBytes(Head(head, n), n);
  });
  m.def("linear_state_bytes",
        [](const Widths& head) { return LinearStateBytes(Head(head, 0)); });
  m.def("crossover_tokens", [](const Widths& head, bool causal) {
    return CrossoverTokens(Head(head, 0), causal);
  });
  m.def("step_crossover_tokens",
        [](const Widths& head) { return StepCrossoverTokens(Head(head, 0)); });
  m.def("memory_crossover_tokens", [](const Widths& head) {
    return MemoryCrossoverTokens(Head(head, 0));
  });
}

}  // namespace tarn
