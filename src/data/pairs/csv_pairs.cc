#include "data/pairs/csv_pairs.h"

#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tarn::train {
namespace {

std::string OrElse(const std::string& name, const char* other) {
  return name.empty() ? std::string(other) : name;
}

}  // namespace

CsvPairs::CsvPairs(std::string path, std::string_view text, bool label_first,
                   const PairColumns& columns)
    : path_(std::move(path)),
      input_(OrElse(columns.input, label_first ? "text" : "source")),
      output_(OrElse(columns.output, label_first ? "label" : "target")),
      label_first_(label_first),
      reader_(path_, text) {
  reader_.Read(record_);
  width_ = record_.fields.size();
  columns_ = FindColumns(path_, record_, input_, output_);
}

bool CsvPairs::Next(std::deque<std::string>& unescaped, Pair& pair) {
  if (!reader_.Read(record_)) return false;
  if (record_.fields.size() != width_) {
    Refuse(StrCat(width_, " fields, as in the header"),
           StrCat(record_.fields.size()));
  }
  pair.input = Kept(columns_.input, input_, unescaped);
  pair.output = Kept(columns_.output, output_, unescaped);
  pair.line = record_.line;
  // Line ends begin and end a target; labels are printed one a line.
  if (pair.output.find_first_of("\n\t") != std::string_view::npos) {
    Refuse(StrCat("column ", Quoted(output_), " without TABs and line ends"),
           Quoted(pair.output));
  }
  if (label_first_ && pair.output.size() > kMaxLabelBytes) {
    Refuse(StrCat("a label of at most ", kMaxLabelBytes, " bytes"),
           StrCat(pair.output.size()));
  }
  return true;
}

std::string_view CsvPairs::Kept(size_t column, const std::string& name,
                                std::deque<std::string>& unescaped) const {
  const CsvField& field = record_.fields[column];
  if (field.text.empty()) {
    Refuse(StrCat("column ", Quoted(name), " not empty"), "nothing");
  }
  if (!field.doubled) return field.text;
  return unescaped.emplace_back(Unescaped(field));
}

void CsvPairs::Refuse(const std::string& wanted,
                      const std::string& given) const {
  throw FormatError(Place(), wanted, given);
}

std::string CsvPairs::Place() const { return StrCat(path_, ":", record_.line); }

}  // namespace tarn::train
