// Reads tokenizers from model directories and from files of other programs.
#include <filesystem>

#include "core/file.h"
#include "core/text.h"
#include "text/bpe_json.h"
#include "text/pipeline/pipeline_json.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_form.h"
#include "text/world_tokenizer.h"

namespace tarn {
namespace {

constexpr uint64_t kMaxFileBytes = 64 << 20;
constexpr char kTokenizerFile[] = "tokenizer.json";
constexpr char kWorldFile[] = "rwkv_vocab_v20230424.txt";

// GPT-2's older pair: the object of encoder.json, and vocab.bpe next to it.
Result<Tokenizer> OpenPair(const std::string& path,
                           const nlohmann::json& encoder) {
  constexpr std::string_view kEncoder = "encoder.json";
  if (!path.ends_with(kEncoder)) {
    return FormatError(path,
                       "a tokenizer.json (with a \"model\" or a "
                       "\"format_version\"), or the name *encoder.json",
                       "neither");
  }
  const std::string bpe_path =
      path.substr(0, path.size() - kEncoder.size()) + "vocab.bpe";
  Result<std::string> merges = ReadFile(bpe_path, kMaxFileBytes);
  if (!merges.ok()) return merges.error();
  Result<BpeDefinition> definition = BpeFromPair(encoder, merges.value());
  if (!definition.ok()) return definition.error();
  return Tokenizer::Bpe(std::move(definition).Take());
}

Result<Tokenizer> OpenWorld(const std::string& path, const std::string& text) {
  Result<WorldTokenizer> world = WorldTokenizer::FromText(text);
  if (!world.ok()) {
    const Error& error = world.error();
    return FormatError(StrCat(path, ": ", error.where()), error.wanted(),
                       error.given());
  }
  return Tokenizer::World(std::move(world).Take());
}

Result<Tokenizer> OpenText(const std::string& path, const std::string& text) {
  if (!text.starts_with('{')) return OpenWorld(path, text);
  Result<nlohmann::json> root = ParseStrictJson(text, path, kMaxFileBytes);
  if (!root.ok()) return root.error();
  // GPT-2's encoder.json has tokens "model" and "type", with numbers.
  const nlohmann::json& object = root.value();
  if (object.contains("format_version") ||
      (object.contains("model") && object["model"].is_object())) {
    return Tokenizer::FromJson(text);
  }
  return OpenPair(path, root.value());
}

// The keys of a file.
Result<Tokenizer> OpenVocabulary(const TextFiles& files) {
  const Result<VocabularyKeys> keys = files.Vocabulary();
  if (!keys.ok()) return keys.error();
  Result<Tokenizer> tokenizer = Tokenizer::FromKeys(keys.value());
  if (tokenizer.ok()) return tokenizer;
  const Error& error = tokenizer.error();
  return FormatError(StrCat(files.path(), ": ", error.where()), error.wanted(),
                     error.given());
}

}  // namespace

bool Tokenizer::IsIn(const TextFiles& files) {
  return files.HasVocabulary() || files.Has(kTokenizerFile) ||
         files.Has(kWorldFile);
}

Result<Tokenizer> Tokenizer::OpenAlone(const TextFiles& files) {
  if (files.HasVocabulary()) return OpenVocabulary(files);
  if (!files.Has(kTokenizerFile) && files.Has(kWorldFile)) {
    const Result<std::string> world = files.Read(kWorldFile, kMaxFileBytes);
    if (!world.ok()) return world.error();
    return OpenWorld(files.Where(kWorldFile), world.value());
  }
  Result<std::string> text = files.Read(kTokenizerFile, kMaxFileBytes);
  if (!text.ok()) return text.error();
  Result<nlohmann::json> root =
      ParseStrictJson(text.value(), kTokenizerFile, kMaxFileBytes);
  if (!root.ok()) return root.error();
  if (!IsHuggingFaceForm(root.value())) return ReadTokenizer(root.value());
  const Result<TokenizerConfig> config = ReadTokenizerConfig(files);
  if (!config.ok()) return config.error();
  nlohmann::json changed = std::move(root).Take();
  try {
    ApplyTokenizerConfig(config.value(), changed);
  } catch (const FormatError& fault) {
    return Error(fault);
  }
  return ReadTokenizer(changed);
}

Result<Tokenizer> Tokenizer::Open(const TextFiles& files,
                                  const ModelConfig& config) {
  if (config.tokenizer == TokenizerKind::kIds && !files.HasVocabulary() &&
      !files.Has(kTokenizerFile)) {
    return Ids(config.vocab_size);
  }
  Result<Tokenizer> tokenizer = OpenAlone(files);
  if (!tokenizer.ok()) return tokenizer;
  if (tokenizer.value().kind() != config.tokenizer) {
    return FormatError(
        StrCat(kTokenizerFile, ": type"),
        StrCat("\"", Name(config.tokenizer), "\" as in config.json"),
        StrCat("\"", Name(tokenizer.value().kind()), "\""));
  }
  if (auto error = tokenizer.value().CheckFits(config)) return *error;
  return tokenizer;
}

std::optional<Error> Tokenizer::CheckFits(const ModelConfig& config) const {
  if (vocab_size() <= config.vocab_size) return std::nullopt;
  return FormatError(
      StrCat(kTokenizerFile, ": entries"),
      StrCat("at most vocab_size ", config.vocab_size, " of config.json"),
      StrCat(vocab_size()));
}

Result<Tokenizer> Tokenizer::OpenFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return OpenAlone(path);
  Result<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return text.error();
  try {
    return OpenText(path, text.value());
  } catch (const FormatError& fault) {
    return Error(fault);
  }
}

}  // namespace tarn
