#include "python/template_module.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "python/binding/function.h"
#include "runtime/model/files.h"
#include "text/template/chat_format.h"

namespace tarn::python {
namespace {

std::vector<std::tuple<std::string, bool>> RenderChatTemplate(
    const std::string& source, const std::string& context,
    const std::vector<int>& now) {
  const RenderOptions options = RenderOptionsOf(now);
  const Unlocked unlocked;
  RenderedText rendered =
      ChatTemplate::Parse(source).Take().RenderJson(context, options).Take();
  std::vector<std::tuple<std::string, bool>> pieces;
  for (RenderedPiece& piece : rendered.pieces) {
    pieces.emplace_back(std::move(piece.text), piece.from_data);
  }
  return pieces;
}

std::tuple<std::string, std::vector<std::tuple<std::string, std::string>>>
ReadChatFormat(const Bytes& dir) {
  const ChatFormat format =
      ChatFormat::Open(ModelPath(std::string(dir.text))).Take();
  std::vector<std::tuple<std::string, std::string>> special;
  for (const auto& [name, text] : format.special_texts) {
    special.emplace_back(name, text);
  }
  return {format.source, std::move(special)};
}

}  // namespace

RenderOptions RenderOptionsOf(const std::vector<int>& now) {
  RenderOptions options;
  if (now.empty()) return options;
  if (now.size() != 6) {
    throw ArgumentError("now", "6 numbers, from the year to the second",
                        StrCat(now.size()));
  }
  options.now = CalendarTime{now[0], now[1], now[2], now[3], now[4], now[5]};
  return options;
}

void AddTemplates(PyObject* module) {
  static PyMethodDef functions[] = {
      Function<&RenderChatTemplate>("render_chat_template"),
      Function<&ReadChatFormat>("chat_format"), kLastMethod};
  if (PyModule_AddFunctions(module, functions) != 0) throw ErrorIsSet();
}

}  // namespace tarn::python
