// Bytes in, token ids out, and back. Byte: 256 ids. Char: the sorted code
// points of a corpus. BPE and Unigram: read from Hugging Face's tokenizer.json;
// a BPE is also trained here. World: RWKV's vocabulary. Ids: the numbers
// themselves. Each is kept in the model directory's tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "core/files/text_files.h"
#include "core/files/vocabulary_keys.h"
#include "text/added_tokens.h"

namespace tarn {

struct BpeDefinition;
class TokenizerForm;
class WorldTokenizer;

struct EncodeOptions {
  /// Whether texts of special tokens ("<|endoftext|>") become those tokens. For
  /// text that the program writes itself, never for a user's. BPE only.
  bool allow_special = false;
  /// Where the text begins in its source, for error messages only.
  uint64_t offset = 0;
  /// Whether to add the tokens that tokenizer.json puts before and after a text
  /// (TemplateProcessing), such as <bos>. Files without that key add none.
  bool add_special = false;
  /// With allow_special: parts of the text that are a user's. A special token
  /// is not found where it reaches into one; a token that the file does not
  /// mark as special is. Sorted, apart, not empty, within the text.
  std::span<const ByteRange> data = {};
};

/// How far a text is decoded that comes token by token. A value; a new one
/// stands for the beginning of a text.
struct DecodeProgress {
  bool begun = false;  // a token has been decoded
  /// Of a step that strips the beginning of a text: how often it has, and what
  /// it waits to compare. kDone: it has ended.
  static constexpr int64_t kDone = -1;
  int64_t stripped = 0;
  std::string held = {};
};

/// A value: copies share the tables of one TokenizerForm (tokenizer_form.h),
/// which implements its type. Immutable; thread-safe.
class Tokenizer {
 public:
  Tokenizer();  // Byte()
  static Tokenizer Byte();
  /// Sorted, distinct code points; throws ArgumentError otherwise or above
  /// 1,114,112 entries.
  static Tokenizer Char(std::vector<uint32_t> code_points);
  /// Every code point that occurs in UTF-8 text; FormatError names the byte
  /// offset of the first invalid sequence.
  static Result<Tokenizer> CharFromText(std::string_view text);

  /// Text is decimal token ids separated by white space (see id_text.h).
  /// vocab_size: 1 to 2^24; throws ArgumentError otherwise.
  static Tokenizer Ids(int64_t vocab_size);

  /// Throws FormatError that names the part of the definition that is wrong.
  static Tokenizer Bpe(BpeDefinition definition);
  static Tokenizer World(WorldTokenizer vocabulary);

  bool operator==(const Tokenizer&) const;
  TokenizerKind kind() const;
  /// Ids run from 0 to vocab_size() - 1. In a few files of published models
  /// some ids have no token: no text yields them, and they stand for none.
  int64_t vocab_size() const;
  /// Null unless the kind is kBpe and the file is of the plain byte-level form
  /// that tarn trains (docs/model-format.md).
  const BpeDefinition* bpe() const;
  /// FormatError with the byte offset of an unknown or invalid character
  /// (char), of a byte without a token (BPE), or of text that is not an id
  /// (ids); never fails for byte and World. `offset`: where `text` begins in
  /// its source, for the message only. Time O(bytes) for byte and ids, O(bytes
  /// log vocab) for char, O(bytes log piece) for BPE, O(bytes * longest token)
  /// for World.
  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      uint64_t offset = 0) const;
  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      const EncodeOptions& options) const;
  /// Appends the bytes of one token (1 for byte, 1 to 4 of UTF-8 for char, any
  /// number for BPE, none for World's 0, a space and digits for ids); they need
  /// not be whole characters.
  /// Throws ArgumentError outside the table.
  void Decode(int32_t token, std::string& out) const;
  /// The same as part of a text that begins with `progress`. The tokens of a
  /// text in order give what the form below gives for all of them, but for a
  /// decoder that strips the end of a text.
  void Decode(int32_t token, DecodeProgress& progress, std::string& out) const;
  /// The bytes of all of them. Where a tokenizer.json puts a space before a
  /// text and its decoder takes it away, this takes it away; the first form, to
  /// which no token is the first, keeps it.
  std::string Decode(const std::vector<int32_t>& tokens) const;
  /// The same as valid UTF-8, exactly as the `tokenizers` package decodes: with
  /// U+FFFD for what is not UTF-8. skip_special: leaves special tokens out (BPE
  /// and Unigram).
  std::string DecodeText(const std::vector<int32_t>& tokens,
                         bool skip_special) const;
  /// Id of the added token that has this content ("<|endoftext|>"), or -1.
  int32_t AddedId(std::string_view content) const;

  /// tokenizer.json: {"format_version":1,"type":"byte"}, {..., "type":"char",
  /// "code_points":[10,32,...]}, {..., "type":"world", "vocabulary": the file's
  /// text}, {..., "type":"ids", "vocab_size":11}, or Hugging Face's form for
  /// BPE (see docs/model-format.md). Same strictness as config.json.
  std::string ToJson() const;
  static Result<Tokenizer> FromJson(std::string_view json);
  /// The keys of a GGUF file, and back; FormatError that names the key, or what
  /// of the tokenizer such a file cannot hold. docs/gguf.md lists both.
  static Result<Tokenizer> FromKeys(const VocabularyKeys& keys);
  Result<VocabularyKeys> ToKeys() const;
  /// Reads a model's tokenizer.json and checks it against the config: the kinds
  /// are equal and every id is a row of the embedding (the model may have
  /// more). This form and the next two: dir is a directory with these files.
  static Result<Tokenizer> Open(const TextFiles& files,
                                const ModelConfig& config);
  static Result<Tokenizer> Open(const std::string& dir,
                                const ModelConfig& config) {
    return Open(FolderFiles(dir), config);
  }
  /// FormatError where it has ids that are no rows of the embedding.
  std::optional<Error> CheckFits(const ModelConfig& config) const;
  /// Reads tokenizer.json and checks it by itself. For Hugging Face's form also
  /// tokenizer_config.json, if there is one: its add_bos_token and
  /// add_eos_token decide what EncodeOptions::add_special adds.
  /// Without a tokenizer.json it reads rwkv_vocab_v20230424.txt, which
  /// published RWKV models have instead.
  static Result<Tokenizer> OpenAlone(const TextFiles& files);
  static Result<Tokenizer> OpenAlone(const std::string& dir) {
    return OpenAlone(FolderFiles(dir));
  }
  /// Whether there is one of the files that OpenAlone reads.
  static bool IsIn(const TextFiles& files);
  static bool IsIn(const std::string& dir) { return IsIn(FolderFiles(dir)); }
  /// Reads a tokenizer from one of: a directory with a tokenizer.json, a
  /// tokenizer.json, GPT-2's encoder.json (vocab.bpe is looked for next to it,
  /// under the same name with "vocab.bpe" for "encoder.json"), or World's
  /// vocabulary file. The contents decide which of them it is.
  static Result<Tokenizer> OpenFile(const std::string& path);

  /// For the factories of forms.
  static Tokenizer FromForm(std::shared_ptr<const TokenizerForm> form) {
    return Tokenizer(std::move(form));
  }

 private:
  explicit Tokenizer(std::shared_ptr<const TokenizerForm> form)
      : form_(std::move(form)) {}

  std::shared_ptr<const TokenizerForm> form_;
};

}  // namespace tarn
