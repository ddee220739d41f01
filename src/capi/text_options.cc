#include "capi/text_options.h"

#include <string>

#include "runtime/session/constraint.h"

namespace tarn::capi {
namespace {

GrammarKind GrammarKindOfC(int32_t kind) {
  switch (kind) {
    case TARN_GRAMMAR_GBNF:
      return GrammarKind::kGbnf;
    case TARN_GRAMMAR_JSON_SCHEMA:
      return GrammarKind::kJsonSchema;
    case TARN_GRAMMAR_REGEX:
      return GrammarKind::kRegex;
    case TARN_GRAMMAR_JSON:
      return GrammarKind::kJson;
    default:
      throw ArgumentError("options.grammar_kind",
                          StrCat(TARN_GRAMMAR_NONE, " to ", TARN_GRAMMAR_JSON),
                          StrCat(kind));
  }
}

void ReadGrammar(const tarn_model& model, const tarn_generate_options& c,
                 GenerateOptions& options) {
  const bool has_source = c.grammar_kind != TARN_GRAMMAR_NONE &&
                          c.grammar_kind != TARN_GRAMMAR_JSON;
  if (!has_source && c.grammar != nullptr) {
    throw ArgumentError("options.grammar", "NULL for this grammar_kind",
                        "a pointer");
  }
  if (c.grammar_kind == TARN_GRAMMAR_NONE) return;
  const GrammarKind kind = GrammarKindOfC(c.grammar_kind);
  if (has_source) Require(c.grammar, "options.grammar");
  options.constraint = Constraint::Make(kind, has_source ? c.grammar : "",
                                        model.tokenizer, options.stop_tokens)
                           .Take();
}

}  // namespace

GenerateOptions GenerateOptionsOf(const tarn_model& model,
                                  const tarn_generate_options& c) {
  GenerateOptions options;
  options.max_tokens = Count(c.max_tokens);
  options.sampler = c.sampler == nullptr
                        ? model.defaults.sampler
                        : SamplerOptionsOf(c.sampler, "options.sampler");
  if (c.stop_tokens == nullptr && c.stop_token_count == 0) {
    options.stop_tokens = model.defaults.stop_tokens;
  } else {
    const auto stop_tokens = Tokens(c.stop_tokens, c.stop_token_count);
    options.stop_tokens.assign(stop_tokens.begin(), stop_tokens.end());
  }
  if (c.stop_count > 0) Require(c.stop, "options.stop");
  if (c.stop_count > kMaxStopTexts) {
    throw ArgumentError("options.stop_count", StrCat("at most ", kMaxStopTexts),
                        StrCat(c.stop_count));
  }
  for (uint64_t i = 0; i < c.stop_count; ++i) {
    Require(c.stop[i], "options.stop");
    options.stop_texts.emplace_back(c.stop[i]);
  }
  ReadGrammar(model, c, options);
  return options;
}

}  // namespace tarn::capi
