// POST /tokenize, /detokenize: text to ids and back.
#include "core/text.h"
#include "serve/api/handle.h"
#include "serve/api/routes.h"

namespace tarn::serve {
namespace {

void TokenizeText(const ServedModel& model, const JsonObject& body,
                  Response& response) {
  const Tokenizer& tokenizer = model.loaded.tokenizer;
  const std::string text = body.Text("content");
  const EncodeOptions options = {
      .allow_special = body.FindFlag("parse_special").value_or(false),
      .add_special = body.FindFlag("add_special").value_or(false)};
  Result<std::vector<int32_t>> ids = tokenizer.Encode(text, options);
  if (!ids.ok()) {
    throw FormatError("content", ids.error().wanted(), ids.error().given());
  }
  Json tokens = Json::array();
  const bool pieces = body.FindFlag("with_pieces").value_or(false);
  for (const int32_t id : ids.value()) {
    if (!pieces) {
      tokens.push_back(id);
      continue;
    }
    std::string piece;
    tokenizer.Decode(id, piece);
    tokens.push_back({{"id", id}, {"piece", SafeText(piece)}});
  }
  SendJson(response, {{"tokens", std::move(tokens)}});
}

}  // namespace

std::vector<Route> TokenRoutes(std::shared_ptr<Service> service) {
  const auto tokenize =
      JsonHandler(service, [service](const JsonObject& body, const Request&,
                                     const PathArguments&, Response& response) {
        TokenizeText(service->Find(body.FindText("model")), body, response);
      });
  const auto detokenize =
      JsonHandler(service, [service](const JsonObject& body, const Request&,
                                     const PathArguments&, Response& response) {
        const ServedModel& model = service->Find(body.FindText("model"));
        const Tokenizer& tokenizer = model.loaded.tokenizer;
        const auto last = static_cast<int32_t>(tokenizer.vocab_size() - 1);
        SendJson(response, {{"content", SafeText(tokenizer.Decode(body.Integers(
                                            "tokens", 0, last)))}});
      });
  return {{"POST", "/tokenize", tokenize}, {"POST", "/detokenize", detokenize}};
}

}  // namespace tarn::serve
