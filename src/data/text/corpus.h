// Training windows and held-out windows of tokens, drawn from a split corpus.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/text/records.h"
#include "data/text/text_files.h"
#include "data/text/token_stream.h"
#include "text/tokenizer.h"

namespace tarn::train {

/// Slices of the text read as one string. 16 bytes a slice.
class Stream {
 public:
  Stream(const TextFiles& files, const std::vector<Slice>& slices);
  uint64_t bytes() const { return bytes_; }
  /// Appends `length` bytes from offset `begin` < bytes() on; past the end
  /// reading continues at the start.
  void Read(uint64_t begin, uint64_t length, std::string& out) const;

 private:
  struct Piece {
    uint64_t begin;  // global offset in the text
    uint64_t start;  // offset in the stream
  };
  const TextFiles* files_;
  std::vector<Piece> pieces_;
  uint64_t bytes_ = 0;
};

/// seq_len + 1 consecutive tokens: inputs are all but the last, targets all
/// but the first.
struct Window {
  std::vector<int32_t> tokens;
  int64_t target_bytes = 0;  // text bytes of tokens[1..]
};

/// Thread-safe after construction. Must not outlive its TextFiles.
class Corpus {
 public:
  /// Throws FormatError when a side of the split holds less than two tokens.
  /// seq_len: >= 1. At most max_held_out windows are kept (8 bytes each),
  /// evenly spaced when the held-out text has more.
  Corpus(const TextFiles& files, const RecordSplit& split, Tokenizer tokenizer,
         int64_t seq_len, int64_t max_held_out);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  uint64_t training_bytes() const { return training_.bytes(); }
  uint64_t held_out_bytes() const { return held_out_.bytes(); }

  /// A pure function of its arguments: where a window starts is drawn uniformly
  /// over the training text (over its tokens, where they are not characters) by
  /// counter-based numbers keyed by (seed, step, row). The text is read as a
  /// ring. The window has `seq_len` + 1 tokens; 0: the length given at
  /// construction.
  Window TrainingWindow(uint64_t seed, int64_t step, int64_t row,
                        int64_t seq_len = 0) const;

  /// Windows that tile the held-out text: each overlaps the one before by a
  /// token, so every token after the first is predicted exactly once.
  int64_t held_out_windows() const {
    return static_cast<int64_t>(starts_.size());
  }
  /// The last window of the text may be shorter.
  Window HeldOutWindow(int64_t index) const;
  /// True when the windows cover the whole held-out text.
  bool covers_held_out() const { return covers_; }

 private:
  std::string TokensAt(const Stream& stream, uint64_t begin,
                       int64_t count) const;
  Window Encode(const std::string& text) const;
  // BPE and World: where a token begins is known only once all of a text is
  // encoded, so both sides are encoded, at 4 bytes a token.
  bool encoded() const { return !token_bytes_.empty(); }
  void FindWindows(const TextFiles& files);
  void FindEncodedWindows();
  Window WindowOf(std::vector<int32_t> tokens) const;

  Tokenizer tokenizer_;
  int64_t seq_len_;
  Stream training_, held_out_;
  TokenStream training_tokens_, held_out_tokens_;  // if encoded()
  std::vector<uint32_t> token_bytes_;              // by id, if encoded()
  std::vector<uint64_t> starts_;  // of the held-out windows; bytes or tokens
  bool covers_ = true;
};

/// The tokenizer of a corpus: bytes, or every character that occurs. Throws
/// FormatError with file and offset for text that is not UTF-8 (kChar), and
/// ArgumentError for kinds that are read from a file (--tokenizer-file).
Tokenizer BuildTokenizer(const TextFiles& files, TokenizerKind kind);

/// Throws FormatError with the file unless every character of the text is in
/// the tokenizer's table (nothing to check for bytes and World; a Corpus
/// encodes all of a BPE text and reports what it cannot encode).
void CheckCovered(const TextFiles& files, const Tokenizer& tokenizer);

}  // namespace tarn::train
