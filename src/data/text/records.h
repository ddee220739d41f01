// A corpus cut into records, without duplicates, one record in twenty held
// out for validation. Everything here is a pure function of the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/text_files.h"

namespace tarn::train {

/// How a file is cut: at lines that hold "%" alone (fortune), into blocks that
/// end at line ends (block), or the first where a file has such lines (auto).
/// fasta: blocks of the letters that FASTA files hold (data/files/fasta.h).
enum class RecordMode { kAuto, kFortune, kBlock, kFasta };

/// Records are at most this many, so that the index stays below 100 MB (24
/// bytes a record while it is built) for a text of any size: blocks grow from 2
/// KiB when the text has more than 4 GiB.
inline constexpr uint64_t kMaxRecords = uint64_t{1} << 22;
/// One record in this many is held out.
inline constexpr uint64_t kHoldOutOneIn = 20;

/// A run of bytes of TextFiles, in one file.
struct Slice {
  uint64_t begin = 0;   // global offset
  uint64_t length = 0;  // bytes
  bool operator==(const Slice&) const = default;
};

/// The outcome. Slices are in text order; neighbours that touch are one.
struct RecordSplit {
  std::vector<Slice> training, held_out;
  int64_t records = 0;           // distinct
  int64_t held_out_records = 0;  // of them
  int64_t duplicates = 0;        // dropped
  uint64_t fingerprint = 0;      // of every byte of the files, in order
};

/// Cuts, drops empty records and exact duplicates (compared without the
/// separator line and the line ends before it; the first one stays), and holds
/// out one record in twenty by a hash of its content, over all files alike. A
/// text too short for that gives its record of least hash. A record keeps its
/// separator line, so that a model learns where texts end. Throws FormatError
/// when fewer than two records remain or there are more than kMaxRecords.
/// held_out_files: how many files at the head are held out whole instead; what
/// occurs there as well is a duplicate in the others. O(bytes) time.
RecordSplit SplitRecords(const TextFiles& files, RecordMode mode,
                         int64_t held_out_files = 0);

/// Cuts one file: calls `visit` with slices that tile it, in order, offsets
/// from its first byte. block_bytes: the size blocks aim at.
void CutFile(std::string_view text, RecordMode mode, uint64_t block_bytes,
             const std::function<void(Slice)>& visit);

/// The compared part of a record: without a last line "%" and line ends.
std::string_view RecordKey(std::string_view record);

}  // namespace tarn::train
