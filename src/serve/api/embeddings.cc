// POST /v1/embeddings: texts as vectors.
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/numbers/bit_cast.h"
#include "core/text.h"
#include "serve/api/handle.h"
#include "serve/api/routes.h"

namespace tarn::serve {
namespace {

// The bytes of float32 numbers, little end first.
std::string Base64OfFloats(std::span<const float> numbers) {
  constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  uint32_t held = 0;
  int bytes = 0;
  const auto write = [&](int digits) {
    for (int i = 0; i < 4; ++i) {
      text += i < digits ? kDigits[(held >> (18 - 6 * i)) & 63] : '=';
    }
    held = 0;
    bytes = 0;
  };
  for (const float number : numbers) {
    const auto bits = BitCast<uint32_t>(number);
    for (int shift = 0; shift < 32; shift += 8) {
      held |= ((bits >> shift) & 255) << (16 - 8 * bytes);
      if (++bytes == 3) write(4);
    }
  }
  if (bytes > 0) write(bytes + 1);
  return text;
}

// The shortest decimals that give the same floats.
std::string ListOfFloats(std::span<const float> numbers) {
  std::string text = "[";
  std::array<char, 32> digits;
  for (const float number : numbers) {
    if (text.size() > 1) text += ',';
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), number);
    text.append(digits.data(), end.ptr);
  }
  return text + "]";
}

struct EmbeddingForm {
  std::string model;
  size_t width = 0;  // d_model
  bool base64 = false;
};

// The document is put together from texts, as it may have millions of numbers.
std::string EmbeddingsText(const EmbeddingForm& form,
                           std::span<const float> vectors,
                           const TextUsage& usage) {
  std::string text = R"({"object":"list","data":[)";
  for (size_t i = 0; i * form.width < vectors.size(); ++i) {
    const auto one = vectors.subspan(i * form.width, form.width);
    if (i > 0) text += ',';
    text += StrCat(R"({"object":"embedding","index":)", i, R"(,"embedding":)");
    text += form.base64 ? StrCat("\"", Base64OfFloats(one), "\"")
                        : ListOfFloats(one);
    text += '}';
  }
  const Json rest = {{"model", form.model},
                     {"usage",
                      {{"prompt_tokens", usage.prompt_tokens},
                       {"total_tokens", usage.prompt_tokens}}}};
  return StrCat(text, "],", rest.dump().substr(1));
}

// Answers from the queue: writing the numbers would hold up the scheduler.
class EmbeddingSink final : public TextSink {
 public:
  EmbeddingSink(WorkQueue& work, EmbeddingForm form, Response response)
      : work_(work), form_(std::move(form)), response_(std::move(response)) {}
  void Token(const TokenEvent&) override {}
  void End(const ChoiceEnd&) override {}
  void Vectors(const std::vector<float>& vectors) override {
    vectors_ = vectors;
  }
  void Done(const TextUsage& usage) override {
    if (vectors_.empty()) {
      SendError(response_, Error(ErrorCode::kInterrupted, "the server ends"));
      return;
    }
    work_.Add([form = form_, response = response_,
               vectors = std::move(vectors_), usage]() mutable {
      response.Send(200, "application/json",
                    EmbeddingsText(form, vectors, usage));
    });
  }
  void Failed(const Error& error) override { SendError(response_, error); }

 private:
  WorkQueue& work_;
  const EmbeddingForm form_;
  Response response_;
  std::vector<float> vectors_;
};

EmbeddingForm ReadForm(const JsonObject& body, const ServedModel& model) {
  EmbeddingForm form;
  form.model = model.name;
  const int64_t width = model.loaded.model.config().d_model;
  form.width = static_cast<size_t>(width);
  const std::string format = body.FindText("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    throw FormatError("encoding_format", "float or base64", Quoted(format));
  }
  form.base64 = format == "base64";
  const auto dimensions = body.FindInteger("dimensions", 1, INT32_MAX);
  if (dimensions && *dimensions != width) {
    throw UnsupportedParameter("dimensions",
                               StrCat(width, ", the width of the model"));
  }
  return form;
}

std::vector<std::vector<int32_t>> ReadInputs(const JsonObject& body,
                                             const ServedModel& model) {
  auto inputs = ReadTexts(body.Value("input"), model, "input", kMaxInputs);
  int64_t tokens = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    tokens += static_cast<int64_t>(inputs[i].size());
    if (inputs[i].empty()) {
      throw FormatError(inputs.size() == 1 ? "input" : ElementName("input", i),
                        "at least one token", "none");
    }
  }
  const int64_t most = model.options.max_prompt_tokens;
  if (most > 0 && tokens > most) {
    throw FormatError("input", StrCat("at most ", most, " tokens in all"),
                      StrCat(tokens));
  }
  return inputs;
}

}  // namespace

std::vector<Route> EmbeddingRoutes(std::shared_ptr<Service> service) {
  const auto handler = JsonHandler(
      service, [service](const JsonObject& body, const Request& request,
                         const PathArguments&, Response& response) {
        ServedModel& model = service->Find(body.FindText("model"));
        TextRequest wanted;
        const EmbeddingForm form = ReadForm(body, model);
        const auto pooling = body.FindText("pooling");
        if (pooling) wanted.pooling = ParsePooling("pooling", *pooling);
        wanted.inputs = ReadInputs(body, model);
        wanted.space = SpaceOf(request);
        wanted.sink =
            std::make_unique<EmbeddingSink>(service->work(), form, response);
        const auto ticket = wanted.ticket;
        response.OnGone([ticket] { ticket->Cancel(); });
        model.scheduler->Submit(std::move(wanted));
      });
  return {{"POST", "/v1/embeddings", handler},
          {"POST", "/embeddings", handler}};
}

}  // namespace tarn::serve
