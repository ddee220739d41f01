// What a type of tokenizer implements. Each has its own file in forms/; the
// rest of the program holds a Tokenizer, the value around one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace tarn {

struct PipelineDefinition;

/// Immutable, thread-safe.
class TokenizerForm {
 public:
  virtual ~TokenizerForm() = default;
  virtual TokenizerKind kind() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual Result<std::vector<int32_t>> Encode(
      std::string_view text, const EncodeOptions& options) const = 0;
  /// token: in [0, vocab_size()).
  virtual void Decode(int32_t token, std::string& out) const = 0;
  virtual std::string ToJson() const = 0;
  /// Tokenizer's functions of these names; by default what the bytes of each
  /// token make, and no added tokens.
  virtual void DecodeNext(int32_t token, DecodeProgress& progress,
                          std::string& out) const;
  virtual std::string DecodeAll(std::span<const int32_t> tokens) const;
  virtual std::string DecodeText(std::span<const int32_t> tokens,
                                 bool skip_special) const;
  virtual int32_t AddedId(std::string_view) const { return -1; }
  /// other: of the same kind.
  virtual bool Equals(const TokenizerForm& other) const = 0;
  virtual const BpeDefinition* bpe() const { return nullptr; }
  /// Throws FormatError where a GGUF file cannot hold it, as by default.
  virtual VocabularyKeys ToKeys() const;
};

using TokenizerFormPointer = std::shared_ptr<const TokenizerForm>;

// One factory per type; Tokenizer's functions document what they throw.
TokenizerFormPointer ByteForm();
TokenizerFormPointer CharForm(std::vector<uint32_t> code_points);
TokenizerFormPointer IdsForm(int64_t vocab_size);
TokenizerFormPointer BpeForm(BpeDefinition definition);
TokenizerFormPointer WorldForm(WorldTokenizer vocabulary);
TokenizerFormPointer PipelineForm(PipelineDefinition definition);

/// "tokenizer.json", for messages.
inline constexpr char kTokenizerJson[] = "tokenizer.json";

/// tokenizer.json in tarn's own form: {"format_version":1,"type":...} and the
/// one key that some types have besides these; null: none.
std::string TokenizerJson(TokenizerKind kind, const char* key,
                          nlohmann::ordered_json value);

/// One row for each type in that form: its word, its key ("": none) and the
/// reader of the key's value, null where the file lacks it.
struct TokenizerFormRow {
  const char* type;
  const char* key;
  Result<Tokenizer> (*read)(const nlohmann::json& value);
};
Result<Tokenizer> ReadByte(const nlohmann::json& nothing);
Result<Tokenizer> ReadChar(const nlohmann::json& code_points);
Result<Tokenizer> ReadWorld(const nlohmann::json& vocabulary);
Result<Tokenizer> ReadIds(const nlohmann::json& vocab_size);
/// Any whole tokenizer.json, parsed.
Result<Tokenizer> ReadTokenizer(const nlohmann::json& root);
/// Whether it is of Hugging Face's form: that has a model and no
/// format_version.
bool IsHuggingFaceForm(const nlohmann::json& root);
/// Hugging Face's form: a whole tokenizer.json. ReadBpe takes what a
/// BpeDefinition expresses, ReadPipeline all that is supported.
Result<Tokenizer> ReadBpe(const nlohmann::json& root);
Result<Tokenizer> ReadPipeline(const nlohmann::json& root);

}  // namespace tarn
