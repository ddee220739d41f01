// What requests of all kinds say about how a text is written. Included by .cc
// files only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/json/json_object.h"
#include "serve/api/service.h"

namespace tarn::serve {

/// Bytes of a request's document; the server takes no more of a body anyway.
inline constexpr uint64_t kMaxRequestBytes = uint64_t{64} << 20;

/// Limits of one request.
inline constexpr size_t kMaxRequestStops = 16;
inline constexpr size_t kMaxRequestStopBytes = 256;
inline constexpr int64_t kMaxChoices = 8;
inline constexpr int64_t kMaxTopLogprobs = 20;
inline constexpr size_t kMaxPrompts = 64;
inline constexpr size_t kMaxInputs = 256;  // of /v1/embeddings

/// A known field whose effect this server does not have.
class UnsupportedParameter : public Error {
 public:
  UnsupportedParameter(const std::string& field, const std::string& reason)
      : Error(ErrorCode::kArgument, field, reason, "a value") {}
};

struct TextOptions {
  SequenceOptions sequence;  // the seed is chosen
  int64_t max_tokens = 0;
  int64_t choices = 1;
  bool stream = false, include_usage = false;
  bool cache_prompt = true, return_tokens = false;
  bool echo = false;  // completions: the prompt comes before the text
  /// Log-probabilities of each token, with those of as many alternatives.
  std::optional<int64_t> top_logprobs;
};

/// Reads the fields that chat, completions and sessions share. Stop tokens are
/// those of the model's directory, unless `ignore_eos`. Throws FormatError and
/// UnsupportedParameter, both with the field's path. may_echo: whether `echo`
/// has an effect here.
TextOptions ReadTextOptions(const JsonObject& request, const ServedModel& model,
                            bool may_echo = false);

/// The grammar that a request wants of its text: response_format, json_schema,
/// grammar (GBNF) or regex, at most one of them. After the stop tokens are all
/// there. Throws FormatError.
void ReadConstraint(const JsonObject& request, const ServedModel& model,
                    TextOptions& options);

/// A prompt: a text, ids, or a list of either, as ids. Throws FormatError.
std::vector<std::vector<int32_t>> ReadPrompts(const JsonObject& request,
                                              const ServedModel& model);
/// The same under another name, at most `most` of them.
std::vector<std::vector<int32_t>> ReadTexts(const nlohmann::json& texts,
                                            const ServedModel& model,
                                            const std::string& where,
                                            size_t most);
/// A text as ids, for a prompt; too long a one is refused by its bytes before
/// it is read.
std::vector<int32_t> PromptIds(const std::string& text,
                               const ServedModel& model,
                               const std::string& where);

/// Lowers the budget of a text to the positions that the model has left, as
/// clients ask for more than there are. Throws FormatError for a prompt that
/// leaves none.
void FitBudget(const std::vector<std::vector<int32_t>>& prompts,
               const ServedModel& model, TextOptions& options);

}  // namespace tarn::serve
