#include "text/template/chat_format.h"

#include <string_view>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr uint64_t kMaxConfigFileBytes = 64 << 20;
constexpr char kTokenizerConfig[] = "tokenizer_config.json";
constexpr char kTemplateFile[] = "chat_template.jinja";
// The variables of chat templates that stand for special tokens.
constexpr const char* kSpecialNames[] = {"bos_token", "eos_token", "unk_token",
                                         "sep_token", "pad_token", "cls_token",
                                         "mask_token"};

Error Refusal(const TextFiles& files, const char* key, const char* wanted,
              const nlohmann::json& value) {
  return FormatError(StrCat(files.Where(kTokenizerConfig), ": ", key), wanted,
                     JsonGiven(value));
}

// A text, or an object that holds it as "content"; absent: "".
Result<std::string> TokenTextOf(const TextFiles& files,
                                const nlohmann::json& root, const char* key) {
  nlohmann::json value = root.value(key, nlohmann::json());
  if (value.is_object()) value = value.value("content", nlohmann::json());
  if (value.is_null()) return std::string();
  if (!value.is_string()) {
    return Refusal(files, key, "the text of a token", value);
  }
  return value.get<std::string>();
}

// The source of the template; absent: "".
Result<std::string> SourceOf(const TextFiles& files,
                             const nlohmann::json& root) {
  constexpr const char* kKey = "chat_template";
  constexpr const char* kWanted =
      "a text, or a list of {name, template} with one named 'default'";
  const nlohmann::json value = root.value(kKey, nlohmann::json());
  if (value.is_null()) return std::string();
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return Refusal(files, kKey, kWanted, value);
  for (const nlohmann::json& entry : value) {
    if (!entry.is_object()) return Refusal(files, kKey, kWanted, entry);
    if (entry.value("name", nlohmann::json()) != "default") continue;
    const nlohmann::json text = entry.value("template", nlohmann::json());
    if (!text.is_string()) return Refusal(files, kKey, kWanted, entry);
    return text.get<std::string>();
  }
  return Refusal(files, kKey, kWanted, value);
}

// tokenizer_config.json; an empty object where there is none.
Result<nlohmann::json> ReadRoot(const TextFiles& files) {
  if (!files.Has(kTokenizerConfig)) return nlohmann::json::object();
  const std::string path = files.Where(kTokenizerConfig);
  const Result<std::string> text =
      files.Read(kTokenizerConfig, kMaxConfigFileBytes);
  if (!text.ok()) return text.error();
  Result<nlohmann::json> root =
      ParseStrictJson(text.value(), path, kMaxConfigFileBytes);
  if (root.ok() && !root.value().is_object()) {
    return FormatError(path, "an object", JsonGiven(root.value()));
  }
  return root;
}

// The format of a source; path: where it is from.
Result<ChatFormat> FormatOf(const TextFiles& files, const nlohmann::json& root,
                            const std::string& source,
                            const std::string& path) {
  Result<ChatTemplate> parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) {
    const Error& error = parsed.error();
    return FormatError(StrCat(path, ": ", error.where()), error.wanted(),
                       error.given());
  }
  ChatFormat format{source, std::move(parsed).Take(), {}};
  for (const char* name : kSpecialNames) {
    Result<std::string> text = TokenTextOf(files, root, name);
    if (!text.ok()) return text.error();
    if (text.value().empty()) continue;
    format.special_texts.push_back({name, std::move(text).Take()});
  }
  return format;
}

}  // namespace

Result<ChatFormat> ChatFormat::Open(const TextFiles& files) {
  const Result<nlohmann::json> root = ReadRoot(files);
  if (!root.ok()) return root.error();
  if (files.Has(kTemplateFile)) {
    const Result<std::string> source =
        files.Read(kTemplateFile, kMaxTemplateBytes);
    if (!source.ok()) return source.error();
    return FormatOf(files, root.value(), source.value(),
                    files.Where(kTemplateFile));
  }
  const Result<std::string> source = SourceOf(files, root.value());
  if (!source.ok()) return source.error();
  if (source.value().empty()) {
    return FormatError(files.path(),
                       StrCat("a chat template: ", kTemplateFile,
                              ", or chat_template in ", kTokenizerConfig),
                       "neither");
  }
  return FormatOf(files, root.value(), source.value(),
                  StrCat(files.Where(kTokenizerConfig), ": chat_template"));
}

Result<ChatFormat> ChatFormat::Open(const TextFiles& files,
                                    const std::string& template_path) {
  const Result<nlohmann::json> root = ReadRoot(files);
  if (!root.ok()) return root.error();
  const Result<std::string> source = ReadFile(template_path, kMaxTemplateBytes);
  if (!source.ok()) return source.error();
  return FormatOf(files, root.value(), source.value(), template_path);
}

Result<RenderedText> ChatFormat::Render(Chat chat,
                                        const RenderOptions& options) const {
  if (chat.variables.is_null()) {
    chat.variables = nlohmann::ordered_json::object();
  }
  for (const auto& [name, text] : special_texts) {
    if (name == "bos_token" && chat.bos_token.empty()) chat.bos_token = text;
    if (name == "eos_token" && chat.eos_token.empty()) chat.eos_token = text;
    if (chat.variables.is_object() && !chat.variables.contains(name)) {
      chat.variables[name] = text;
    }
  }
  return RenderChat(chat_template, chat, options);
}

Result<std::vector<int32_t>> EncodeRendered(const Tokenizer& tokenizer,
                                            const RenderedText& text,
                                            size_t from) {
  std::string all;
  std::vector<ByteRange> data;
  for (const RenderedPiece& piece : text.pieces) {
    const size_t begin = all.size();
    all += piece.text;
    if (piece.from_data) data.push_back({begin, all.size()});
  }
  const std::vector<ByteRange> rest = RangesWithin(data, from, all.size());
  EncodeOptions options;
  options.allow_special = true;
  options.data = rest;
  options.offset = from;
  return tokenizer.Encode(std::string_view(all).substr(from), options);
}

Result<std::vector<int32_t>> EncodeChat(const Tokenizer& tokenizer,
                                        const ChatFormat& format,
                                        const Chat& chat,
                                        const RenderOptions& options) {
  const Result<RenderedText> text = format.Render(chat, options);
  if (!text.ok()) return text.error();
  return EncodeRendered(tokenizer, text.value());
}

}  // namespace tarn
