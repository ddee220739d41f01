// FASTA, the format of genomes: lines ">name ..." each before a sequence cut
// into lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tarn {

/// The letters of a FASTA file as they come: without headers and line ends, in
/// upper case, one line feed between two sequences. Constant memory, O(bytes)
/// time. One thread at a time.
///
/// Letters are those of nucleotides and amino acids with their ambiguity codes:
/// A to Z, "*" and "-". Line ends are "\n" or "\r\n"; empty lines are skipped.
class FastaReader {
 public:
  /// where: how messages name the file.
  explicit FastaReader(std::string where) : where_(std::move(where)) {}

  /// Appends the letters among `bytes`, the next of the file. Throws
  /// FormatError with the line and the byte for a file that does not begin
  /// with ">", any other character in a sequence, a sequence without letters.
  void Read(std::string_view bytes, std::string& letters);
  /// The file has ended: throws FormatError for an empty one, and for a header
  /// without a sequence.
  void Finish() const;

  /// Sequences begun, including the one that is being read.
  int64_t sequences() const { return sequences_; }

 private:
  enum class Place { kStart, kHeader, kLineStart, kInLine, kAfterReturn };
  void ReadByte(char c, std::string& letters);
  void BeginHeader();
  [[noreturn]] void Refuse(const std::string& wanted, char c) const;

  std::string where_;
  Place place_ = Place::kStart;
  int64_t sequences_ = 0, letters_ = 0;  // letters of this sequence
  int64_t line_ = 1;
  uint64_t offset_ = 0;  // of the byte being read
};

}  // namespace tarn
