// Chat templates within small limits. The input: a template, a NUL byte, and
// the variables as a JSON object.
#include <string>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "text/template/chat_template.h"

namespace tarn::fuzz {
namespace {

constexpr uint64_t kMostOutput = 1 << 18;

RenderOptions Options() {
  RenderOptions options;
  options.limits.max_steps = 100'000;
  options.limits.max_output_bytes = kMostOutput;
  options.limits.max_memory_bytes = 16 << 20;
  options.now = CalendarTime{2026, 2, 28, 23, 59, 58};
  return options;
}

void Render(const std::string& source, const std::string& variables) {
  const Result<ChatTemplate> parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return CheckRefusal(parsed.error());
  const Result<RenderedText> text =
      parsed.value().RenderJson(variables, Options());
  if (!text.ok()) {
    // raise_exception may say anything, in any number of lines.
    return Require(text.error().code() != ErrorCode::kInternal,
                   text.error().what());
  }
  Require(text.value().Text().size() <= kMostOutput, "more than the limit");
  const std::vector<RenderedPiece>& pieces = text.value().pieces;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Require(!pieces[i].text.empty(), "an empty piece");
    Require(i == 0 || pieces[i].from_data != pieces[i - 1].from_data,
            "two pieces that are one");
  }
  ++Accepted();
}

}  // namespace
}  // namespace tarn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tarn;
  const std::vector<std::string> parts =
      fuzz::Parts(fuzz::TextOf(data, size), 2);
  fuzz::Try(
      [&] { fuzz::Render(parts[0], parts[1].empty() ? "{}" : parts[1]); });
  return 0;
}
