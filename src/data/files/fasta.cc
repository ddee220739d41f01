#include "data/files/fasta.h"

#include "core/error.h"
#include "core/text.h"

namespace tarn {
namespace {

// The letter in upper case, or 0 if it is not a letter.
char LetterOf(char c) {
  if (c >= 'a' && c <= 'z') return static_cast<char>(c - 'a' + 'A');
  return (c >= 'A' && c <= 'Z') || c == '*' || c == '-' ? c : '\0';
}

}  // namespace

void FastaReader::Refuse(const std::string& wanted, char c) const {
  throw FormatError(StrCat(where_, ": line ", line_, ", byte ", offset_),
                    wanted, Quoted(std::string_view(&c, 1)));
}

void FastaReader::BeginHeader() {
  if (sequences_ > 0 && letters_ == 0) {
    throw FormatError(StrCat(where_, ": line ", line_),
                      "a sequence after the header before", "none");
  }
  ++sequences_;
  letters_ = 0;
  place_ = Place::kHeader;
}

void FastaReader::ReadByte(char c, std::string& letters) {
  switch (place_) {
    case Place::kStart:
      if (c != '>') Refuse("FASTA, which begins with '>'", c);
      return BeginHeader();
    case Place::kHeader:
      if (c == '\n') place_ = Place::kLineStart;
      return;
    case Place::kLineStart:
      if (c == '>') return BeginHeader();
      break;
    case Place::kInLine:
      break;
    case Place::kAfterReturn:
      if (c != '\n') Refuse("a line feed after a carriage return", c);
  }
  if (c == '\n') {
    place_ = Place::kLineStart;
  } else if (c == '\r') {
    place_ = Place::kAfterReturn;
  } else {
    const char letter = LetterOf(c);
    if (letter == '\0') Refuse("a letter of a sequence (A-Z, '*', '-')", c);
    if (letters_ == 0 && sequences_ > 1) letters += '\n';
    letters += letter;
    ++letters_;
    place_ = Place::kInLine;
  }
}

void FastaReader::Read(std::string_view bytes, std::string& letters) {
  for (const char c : bytes) {
    ReadByte(c, letters);
    ++offset_;
    line_ += c == '\n';
  }
}

void FastaReader::Finish() const {
  if (letters_ > 0) return;
  throw FormatError(where_,
                    sequences_ == 0 ? "FASTA, which begins with '>'"
                                    : "a sequence after the last header",
                    sequences_ == 0 ? "an empty file" : "none");
}

}  // namespace tarn
