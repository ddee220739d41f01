// The rows for other languages.
#include "core/json.h"
#include "mixers/gated/form.h"

namespace tarn {
namespace {

const char* Word(DecayGate gate) {
  switch (gate) {
    case DecayGate::kNone:
      break;
    case DecayGate::kConstant:
      return "constant";
    case DecayGate::kHead:
      return "head";
    case DecayGate::kChannel:
      return "channel";
    case DecayGate::kLogSigmoid:
      return "log-sigmoid";
    case DecayGate::kBounded:
      return "bounded";
  }
  return "none";
}

const char* Word(OutputGate gate) {
  if (gate == OutputGate::kNone) return "none";
  return gate == OutputGate::kSilu ? "silu" : "sigmoid";
}

const char* Word(NormSpan span) {
  if (span == NormSpan::kHead) return "head";
  return span == NormSpan::kAll ? "all" : "group";
}

}  // namespace

std::string FormText(const GatedForm& form) {
  const nlohmann::ordered_json row = {
      {"gate", Word(form.gate)},
      {"delta", form.delta},
      {"convolution", form.convolution},
      {"silu_queries", form.silu_queries},
      {"silu_keys_values", form.silu_keys_values},
      {"unit", form.unit},
      {"mapped", form.mapped},
      {"grouped", form.grouped},
      {"scaled", form.scaled},
      {"output_gate", Word(form.output_gate)},
      {"low_rank_output_gate", form.low_rank_output_gate},
      {"gate_first", form.gate_first},
      {"span", Word(form.span)},
      {"skip", form.skip},
      {"rotary", form.rotary},
      {"log_sigmoid_divisor", kLogSigmoidDivisor},
      {"unit_eps", kUnitEps},
      {"unit_sum_eps", kUnitSumEps},
      {"divisor_eps", kDivisorEps},
      {"dpfp_rolls", kDpfpRolls}};
  return row.dump();
}

}  // namespace tarn
