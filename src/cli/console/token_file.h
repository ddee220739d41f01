// The tokens of a text, read from a file or standard input piece by piece.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/console/input.h"
#include "text/tokenizer.h"

namespace tarn::cli {

/// Reads a text as one sequence of tokens. Memory stays at one piece, except
/// for the tokenizers (bpe, world, ids) whose token ends may depend on any
/// later byte: those read and encode the text as a whole, at most 1 GiB. Before
/// it come the tokens with which the tokenizer lets texts begin, such as <bos>;
/// they have no bytes.
class TokenFile {
 public:
  /// max_tokens: stop after as many; 0: at the end of the text. The tokenizer
  /// must outlive this. Throws IoError when the file cannot be opened.
  /// form: see cli/console/input.h.
  TokenFile(const std::string& path, const Tokenizer& tokenizer,
            int64_t max_tokens = 0, InputForm form = InputForm::kPlain);
  /// Replaces `tokens` by the next ones, at least one; false at the end or when
  /// a signal is pending. Throws IoError, and ExitError for text that the
  /// tokenizer does not take.
  bool Next(std::vector<int32_t>& tokens);
  /// Bytes of the text of the tokens given so far, and of the first of them.
  uint64_t bytes() const { return bytes_; }
  uint64_t first_bytes() const { return first_bytes_; }
  uint64_t size() const { return input_.size(); }  // 0 when not known

 private:
  bool NextPiece(std::vector<int32_t>& tokens);
  bool NextOfWhole(std::vector<int32_t>& tokens);
  void ReadWhole();
  std::vector<int32_t> Encode(std::string_view text) const;
  void AddBeginning();
  // Bytes of the text of tokens, of which the first has this index.
  uint64_t TextBytes(std::span<const int32_t> tokens, size_t first) const;

  std::string path_;
  const Tokenizer& tokenizer_;
  InputFile input_;
  int64_t left_;      // tokens that may still be given
  std::string held_;  // a character cut by the end of a piece
  bool whole_, more_ = true;
  std::vector<int32_t> all_;  // of a text encoded as a whole
  size_t given_ = 0;          // of all_
  size_t given_tokens_ = 0;
  size_t beginning_ = 0;  // tokens before those of the text
  uint64_t whole_bytes_ = 0, bytes_ = 0, first_bytes_ = 0;
};

}  // namespace tarn::cli
