// Our own templates and small expressions against what transformers renders
// (tests/golden/chat_templates/make_chat_templates.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "text/template/chat_template.h"

namespace tarn {
namespace {

const std::string kFolder =
    std::string(TARN_SOURCE_DIR) + "/tests/golden/chat_templates/";

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

const nlohmann::ordered_json& Goldens() {
  static const auto goldens =
      nlohmann::ordered_json::parse(FileText(kFolder + "goldens.json"));
  return goldens;
}

RenderOptions AtTheTime() {
  const auto now = Goldens()["now"].get<std::vector<int>>();
  RenderOptions options;
  options.now = CalendarTime{now[0], now[1], now[2], now[3], now[4], now[5]};
  return options;
}

// The text, or null and why.
nlohmann::ordered_json Rendered(const std::string& source,
                                const nlohmann::ordered_json& context,
                                std::string* why) {
  Result<ChatTemplate> parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) {
    *why = parsed.error().what();
    return nullptr;
  }
  Result<RenderedText> text = parsed.value().Render(context, AtTheTime());
  Result<RenderedText> from_text =
      parsed.value().RenderJson(context.dump(), AtTheTime());
  EXPECT_EQ(text.ok(), from_text.ok()) << source;
  if (!text.ok()) {
    *why = text.error().what();
    EXPECT_EQ(why->find('\n'), std::string::npos) << *why;
    return nullptr;
  }
  EXPECT_EQ(text.value().pieces, from_text.value().pieces) << source;
  return text.value().Text();
}

TEST(ChatTemplateGolden, Templates) {
  int count = 0;
  for (const auto& [name, texts] : Goldens()["templates"].items()) {
    const std::string source = FileText(kFolder + "templates/" + name);
    ASSERT_FALSE(source.empty()) << name;
    for (const auto& [conversation, text] : texts.items()) {
      std::string why;
      EXPECT_EQ(Rendered(source, Goldens()["contexts"][conversation], &why),
                text)
          << name << " " << conversation << " " << why;
      ++count;
    }
  }
  EXPECT_EQ(count, 600);
}

TEST(ChatTemplateGolden, Expressions) {
  ASSERT_GT(Goldens()["expressions"].size(), 2900u);
  for (const auto& row : Goldens()["expressions"]) {
    std::string why;
    EXPECT_EQ(Rendered(row[0], Goldens()["expression_context"], &why), row[1])
        << row[0] << " " << why;
  }
}

}  // namespace
}  // namespace tarn
