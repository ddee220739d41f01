#include "text/template/chat_template.h"

#include <utility>

#include "text/template/interpreter.h"

namespace tarn {
namespace {

RenderedText Pieces(const jinja::MarkedText& text) {
  RenderedText rendered;
  size_t begin = 0;
  for (const jinja::MarkedText::Span& span : text.spans()) {
    rendered.pieces.push_back(
        {text.text().substr(begin, span.end - begin), span.data});
    begin = span.end;
  }
  return rendered;
}

template <typename Context>
Result<RenderedText> RenderWith(const jinja::Program& program,
                                const Context& context,
                                const RenderOptions& options) {
  try {
    jinja::Machine machine(program, options);
    jinja::SetContext(machine, context);
    return Pieces(machine.Run());
  } catch (const jinja::Fault& fault) {
    return jinja::ToError(fault);
  }
}

}  // namespace

std::string RenderedText::Text() const {
  std::string text;
  for (const RenderedPiece& piece : pieces) text += piece.text;
  return text;
}

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Program> program)
    : program_(std::move(program)) {}

Result<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  try {
    return ChatTemplate(jinja::ParseProgram(source));
  } catch (const jinja::Fault& fault) {
    return jinja::ToError(fault);
  }
}

Result<RenderedText> ChatTemplate::Render(const nlohmann::ordered_json& context,
                                          const RenderOptions& options) const {
  return RenderWith(*program_, context, options);
}

Result<RenderedText> ChatTemplate::RenderJson(
    std::string_view context, const RenderOptions& options) const {
  return RenderWith(*program_, context, options);
}

}  // namespace tarn
