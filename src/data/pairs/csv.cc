#include "data/pairs/csv.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tarn::train {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// The columns of a header for a message, the first few of many.
std::string ColumnsText(const CsvRecord& header) {
  constexpr size_t kShown = 8;
  std::string text = "the columns";
  for (size_t i = 0; i < std::min(header.fields.size(), kShown); ++i) {
    text += (i == 0 ? " " : ", ") + Quoted(header.fields[i].text);
  }
  return text + (header.fields.size() > kShown ? ", ..." : "");
}

}  // namespace

bool IsCsvName(std::string_view path) {
  std::string name = Lower(path);
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (name.ends_with(packed)) name.resize(name.size() - packed.size());
  }
  return name.ends_with(".csv");
}

CsvReader::CsvReader(std::string path, std::string_view text)
    : path_(std::move(path)), text_(text) {
  if (text_.starts_with("\xff\xfe") || text_.starts_with("\xfe\xff")) {
    Refuse(1, "a CSV file in UTF-8", "UTF-16 (save it as CSV UTF-8)");
  }
  if (text_.starts_with(kByteOrderMark)) {
    text_.remove_prefix(kByteOrderMark.size());
  }
}

void CsvReader::Refuse(int64_t line, const std::string& wanted,
                       const std::string& given) const {
  throw FormatError(StrCat(path_, ":", line), wanted, given);
}

// The part after the opening quote, up to the closing one, which is taken.
CsvField CsvReader::TakeQuoted(const CsvRecord& record) {
  CsvField field;
  const size_t begin = ++at_;
  const size_t limit = std::min(text_.size(), begin + kMaxRecordBytes);
  for (; at_ < limit; ++at_) {
    if (text_[at_] == '\n') ++line_;
    if (text_[at_] != '"') continue;
    if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
      field.doubled = true;
      ++at_;
      continue;
    }
    field.text = text_.substr(begin, at_++ - begin);
    return field;
  }
  Refuse(record.line,
         StrCat("a closing quote within ", kMaxRecordBytes, " bytes"), "none");
}

CsvField CsvReader::TakeField(const CsvRecord& record) {
  if (at_ < text_.size() && text_[at_] == '"') {
    const CsvField field = TakeQuoted(record);
    const bool ends = at_ == text_.size() || text_[at_] == ',' ||
                      text_[at_] == '\n' ||
                      (text_[at_] == '\r' && at_ + 1 < text_.size() &&
                       text_[at_ + 1] == '\n');
    if (!ends && text_.substr(at_) != "\r") {
      Refuse(line_, "a comma or a line end after a closing quote",
             Quoted(text_.substr(at_, 1)));
    }
    return field;
  }
  const size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n') {
    if (text_[at_] == '"') {
      Refuse(line_, "quotes around the whole field, and doubled inside it",
             "a quote inside a field without");
    }
    if (at_++ - begin > kMaxRecordBytes) break;  // refused by its caller
  }
  std::string_view text = text_.substr(begin, at_ - begin);
  const bool line_end = at_ == text_.size() || text_[at_] == '\n';
  if (line_end && text.ends_with('\r')) text.remove_suffix(1);
  return {text};
}

bool CsvReader::Read(CsvRecord& record) {
  // Lines that hold nothing.
  while (at_ < text_.size()) {
    const size_t skip = text_.substr(at_).starts_with("\r\n") ? 2
                        : text_[at_] == '\n'                  ? 1
                                                              : 0;
    if (skip == 0) break;
    at_ += skip;
    ++line_;
  }
  record.fields.clear();
  record.line = line_;
  if (at_ == text_.size()) return false;
  const size_t begin = at_;
  for (bool more = true; more;) {
    record.fields.push_back(TakeField(record));
    if (at_ - begin > kMaxRecordBytes) {
      Refuse(record.line,
             StrCat("a record of at most ", kMaxRecordBytes, " bytes"), "more");
    }
    if (record.fields.size() > kMaxFields) {
      Refuse(record.line, StrCat("at most ", kMaxFields, " fields"), "more");
    }
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    more = at_ < text_.size() && text_[at_] == ',';
    if (at_ < text_.size()) {
      line_ += text_[at_] == '\n';
      ++at_;
    }
  }
  return true;
}

std::string Unescaped(const CsvField& field) {
  std::string text;
  for (size_t i = 0; i < field.text.size(); ++i) {
    text += field.text[i];
    if (field.doubled && field.text[i] == '"') ++i;
  }
  return text;
}

CsvColumns FindColumns(const std::string& path, const CsvRecord& header,
                       const std::string& input, const std::string& output) {
  const auto refuse = [&](const std::string& wanted) {
    std::string given = ColumnsText(header);
    if (header.fields.size() == 1 &&
        header.fields[0].text.find_first_of(";\t") != std::string_view::npos) {
      given += " (fields are separated by commas)";
    }
    throw FormatError(StrCat(path, ":", header.line), wanted, given);
  };
  const auto find = [&](const std::string& name) {
    size_t found = header.fields.size();
    for (size_t i = 0; i < header.fields.size(); ++i) {
      if (Lower(Unescaped(header.fields[i])) != Lower(name)) continue;
      if (found < header.fields.size()) {
        refuse(StrCat("one column ", Quoted(name)));
      }
      found = i;
    }
    return found;
  };
  const CsvColumns columns = {find(input), find(output)};
  if (std::max(columns.input, columns.output) == header.fields.size()) {
    refuse(StrCat("a header with columns ", Quoted(output), " and ",
                  Quoted(input),
                  ", or the names of its columns (--label-column NAME, "
                  "--text-column NAME)"));
  }
  if (columns.input == columns.output) {
    refuse("two columns (--label-column, --text-column)");
  }
  return columns;
}

}  // namespace tarn::train
