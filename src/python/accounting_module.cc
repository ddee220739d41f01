#include "python/accounting_module.h"

#include <cstdint>
#include <string>
#include <tuple>

#include "config/accounting.h"
#include "config/model_config.h"
#include "core/error.h"
#include "mixers/linear/form_costs.h"
#include "python/binding/function.h"

namespace tarn::python {
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

template <typename T>
void Put(const Owned& dictionary, const char* key, T value) {
  const Owned object = ToPython(value);
  if (PyDict_SetItemString(dictionary.get(), key, object.get()) != 0) {
    throw ErrorIsSet();
  }
}

Owned Parts(const std::string& json) {
  const ParameterParts parts = CountParameterParts(Read(json));
  Owned found(PyDict_New());
  Put(found, "embedding", parts.embedding);
  Put(found, "positions", parts.positions);
  Put(found, "attention", parts.attention);
  Put(found, "feed_forward", parts.feed_forward);
  Put(found, "norms", parts.norms);
  Put(found, "recurrent", parts.recurrent);
  Put(found, "head", parts.head);
  Put(found, "total", parts.Total());
  return found;
}

Owned Scaling(const std::string& json, int64_t n) {
  const ModelConfig config = Read(json);
  const HeadWidths head = HeadWidthsOf(config);
  Head({head.d_key, head.d_value, head.d_feature}, n);
  const TokenScaling scaling = ScalingAt(config, n);
  Owned found(PyDict_New());
  Put(found, "tokens", scaling.tokens);
  Put(found, "softmax_parallel_flop", scaling.softmax_parallel_flop);
  Put(found, "linear_parallel_flop", scaling.linear_parallel_flop);
  Put(found, "softmax_step_flop", scaling.softmax_step_flop);
  Put(found, "linear_step_flop", scaling.linear_step_flop);
  Put(found, "softmax_step_bytes", scaling.softmax_step_bytes);
  Put(found, "linear_step_bytes", scaling.linear_step_bytes);
  return found;
}

int64_t Textbook(int64_t d_model, int64_t embeddings) {
  constexpr int64_t kMost = int64_t{1} << 29;
  if (d_model < 1 || d_model > kMost || embeddings < 0 || embeddings > kMost) {
    throw ArgumentError("d_model, embeddings", StrCat("1 and 0 to ", kMost),
                        StrCat(d_model, ", ", embeddings));
  }
  return TextbookParameters(d_model, embeddings);
}

std::string Finished(const std::string& json) {
  return ConfigToFlatJson(Read(json));
}

Widths WidthsOf(const std::string& json) {
  const HeadWidths head = HeadWidthsOf(Read(json));
  return Widths(head.d_key, head.d_value, head.d_feature);
}

// A formula of a head's widths, and one of these and a number of tokens.
template <auto F>
auto OfHead(const Widths& head) {
  return F(Head(head, 0));
}
template <auto F>
auto OfTokens(const Widths& head, int64_t n) {
  return F(Head(head, n), n);
}

}  // namespace

void AddAccounting(PyObject* module) {
  static PyMethodDef functions[] = {
      Function<&Finished>("finish_config"),
      Function<&Parts>("parameters_by_part"),
      Function<&Scaling>("scaling"),
      Function<&Textbook>("textbook_parameters"),
      Function<&WidthsOf>("head_widths"),
      Function<[](const Widths& head, int64_t n, bool causal) {
        return SoftmaxFlop(Head(head, n), n, causal);
      }>("softmax_flop"),
      Function<&OfTokens<&LinearFlop>>("linear_flop"),
      Function<&OfTokens<&SoftmaxStepFlop>>("softmax_step_flop"),
      Function<&OfHead<&LinearStepFlop>>("linear_step_flop"),
      Function<&OfTokens<&SoftmaxCacheBytes>>("softmax_cache_bytes"),
      Function<&OfHead<&LinearStateBytes>>("linear_state_bytes"),
      Function<[](const Widths& head, bool causal) {
        return CrossoverTokens(Head(head, 0), causal);
      }>("crossover_tokens"),
      Function<&OfHead<&StepCrossoverTokens>>("step_crossover_tokens"),
      Function<&OfHead<&MemoryCrossoverTokens>>("memory_crossover_tokens"),
      kLastMethod};
  if (PyModule_AddFunctions(module, functions) != 0) throw ErrorIsSet();
}

}  // namespace tarn::python
