#include "cli/console/lines.h"

#include <algorithm>

#include "cli/cli.h"
#include "cli/console/signals.h"
#include "core/text.h"

namespace tarn::cli {

LineReader::LineReader(const std::string& path) : path_(path), input_(path) {}

bool LineReader::Next(std::string& line) {
  constexpr size_t kPiece = 1 << 16;
  size_t searched = at_;
  size_t stop = 0;
  while ((stop = held_.find('\n', searched)) == held_.npos && !end_) {
    if (held_.size() - at_ > kMaxBytes) {
      throw ExitError(kExitBadModel, StrCat(InputName(path_), ":", number_ + 1,
                                            ": want a line of at most ",
                                            kMaxBytes, " bytes, got more"));
    }
    held_.erase(0, at_);
    at_ = 0;
    searched = held_.size();
    const bool more = input_.Read(kPiece, held_);
    // A signal ends the reading, not the input.
    if (PendingSignal() != 0) return false;
    end_ = !more;
  }
  if (PendingSignal() != 0) return false;
  if (stop == held_.npos) {
    if (at_ == held_.size()) return false;
    stop = held_.size();
  }
  line.assign(held_, at_, stop - at_);
  bytes_read_ += std::min(stop + 1, held_.size()) - at_;
  at_ = std::min(stop + 1, held_.size());
  ++number_;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

std::string LineReader::Place() const {
  return StrCat(InputName(path_), ":", number_);
}

bool NextPair(LineReader& lines, const char* wanted, TextPair& pair) {
  std::string line;
  do {
    if (!lines.Next(line)) return false;
  } while (line.empty());
  const size_t tab = line.find('\t');
  if (tab == line.npos || line.find('\t', tab + 1) != line.npos || tab == 0 ||
      tab + 1 == line.size()) {
    throw ExitError(kExitBadModel,
                    StrCat(lines.Place(), ": want ", wanted,
                           ", neither empty, got ", Quoted(line)));
  }
  pair.first = line.substr(0, tab);
  pair.second = line.substr(tab + 1);
  return true;
}

}  // namespace tarn::cli
