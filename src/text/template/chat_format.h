// How a model's conversations are written: the chat template of a directory
// with its special tokens, and conversations as the ids that a model reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/files/text_files.h"
#include "text/template/chat.h"
#include "text/tokenizer.h"

namespace tarn {

/// A value; immutable, thread-safe.
struct ChatFormat {
  std::string source;  // of the template
  ChatTemplate chat_template;
  /// Special tokens by the names that templates use, "bos_token" to its text.
  std::vector<std::pair<std::string, std::string>> special_texts;

  /// chat_template.jinja, which outranks the key chat_template of
  /// tokenizer_config.json: a text, or a list of {"name", "template"} of
  /// which "default" is taken. The special tokens are those of the latter file,
  /// which may be absent. FormatError where there is no template or a faulty
  /// one; IoError.
  static Result<ChatFormat> Open(const TextFiles& files);
  static Result<ChatFormat> Open(const std::string& dir) {
    return Open(FolderFiles(dir));
  }
  /// The same with the template in another file.
  static Result<ChatFormat> Open(const TextFiles& files,
                                 const std::string& template_path);
  static Result<ChatFormat> Open(const std::string& dir,
                                 const std::string& template_path) {
    return Open(FolderFiles(dir), template_path);
  }

  /// RenderChat with the special tokens of this format for those that the chat
  /// does not name.
  Result<RenderedText> Render(Chat chat,
                              const RenderOptions& options = {}) const;
};

/// The ids of a rendered text as a whole: pieces and merges run across what
/// the template and the conversation wrote. Special tokens are found in the
/// template's text alone. No tokens are added before or after it: a template
/// writes them. from: the byte of the text to begin at. Errors as
/// Tokenizer::Encode.
Result<std::vector<int32_t>> EncodeRendered(const Tokenizer& tokenizer,
                                            const RenderedText& text,
                                            size_t from = 0);

/// EncodeRendered of format.Render.
Result<std::vector<int32_t>> EncodeChat(const Tokenizer& tokenizer,
                                        const ChatFormat& format,
                                        const Chat& chat,
                                        const RenderOptions& options = {});

}  // namespace tarn
