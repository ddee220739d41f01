#include "cli/eval/pair_source.h"

#include <filesystem>
#include <vector>

#include "cli/cli.h"
#include "cli/console/signals.h"
#include "core/text.h"
#include "data/pairs/csv.h"

namespace tarn::cli {

PairSource::PairSource(const std::string& path, PairKind kind,
                       const train::PairColumns& columns)
    : kind_(kind) {
  if (columns.input.empty() && columns.output.empty() &&
      !train::IsCsvName(path)) {
    lines_ = std::make_unique<LineReader>(path);
    return;
  }
  // A packed file and standard input are copied to where other temporary files
  // are.
  csv_ = std::make_unique<train::TextFiles>(
      std::vector<std::string>{path},
      std::filesystem::temp_directory_path().string());
  records_ = std::make_unique<train::CsvPairs>(
      InputName(path), csv_->contents(0), kind == PairKind::kLabelled, columns);
}

bool PairSource::Next(TextPair& pair) {
  if (records_) return NextOfCsv(pair);
  return NextPair(
      *lines_,
      kind_ == PairKind::kLabelled ? "label TAB text" : "source TAB target",
      pair);
}

bool PairSource::NextOfCsv(TextPair& pair) {
  unescaped_.clear();
  if (PendingSignal() != 0 || !records_->Next(unescaped_, found_)) return false;
  pair.first = kind_ == PairKind::kLabelled ? found_.output : found_.input;
  pair.second = kind_ == PairKind::kLabelled ? found_.input : found_.output;
  return true;
}

std::string PairSource::Place() const {
  return lines_ ? lines_->Place() : records_->Place();
}

uint64_t PairSource::size() const {
  return lines_ ? lines_->size() : csv_->bytes();
}

uint64_t PairSource::done() const {
  return lines_ ? lines_->bytes_read() : records_->bytes_read();
}

}  // namespace tarn::cli
