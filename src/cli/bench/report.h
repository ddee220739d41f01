// How `tarn bench` writes its results: the columns and keys of llama-bench, so
// that tables can be compared side by side, and the figures of states.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/run.h"

namespace tarn::cli {

/// One line of results and everything that explains it.
struct BenchRow {
  std::string model;        // "linear 152.73M F32"
  std::string path;         // of the model directory
  std::string weight_type;  // "f32", "bf16"
  std::string cache_type = "f32";
  std::string simd_target, cpu, time;
  int64_t weight_bytes = 0, parameters = 0, threads = 0;
  BenchTest test;
  BenchTimes times;
  int64_t bytes_per_step = 0;
  double read_bandwidth = 0;  // bytes a second, a buffer of the weights' size
  StateTimes state;

  int64_t Tokens() const;             // of one repetition, all sessions
  std::string TestName() const;       // "pp512", "tg128 @ d4096", "tg32 x 16"
  std::vector<double> Rates() const;  // tokens a second, one a repetition
  double BytesPerSecond() const;      // of a step, at its median; 0 for prompts
};

double Mean(const std::vector<double>& values);
/// The root of the squares' sum over n - 1; 0 for fewer than two values.
double StandardDeviation(const std::vector<double>& values);

/// "612.01 MiB", "1.40 GiB"; "152.73 M", "1.60 B".
std::string SizeText(int64_t bytes);
std::string CountText(int64_t count);

/// Markdown. Rows: the table that compares with llama-bench's. Footer: the
/// second table, rows of many sessions and bytes against bandwidth, and the
/// third, what a state costs.
std::string MarkdownHeader();
std::string MarkdownRow(const BenchRow& row);
std::string MarkdownFooter(const std::vector<BenchRow>& rows);

/// llama-bench's keys, neutral where one has no meaning here, followed by ours.
/// A JSON row is an object without a comma; CSV has no samples.
std::string JsonRow(const BenchRow& row);
std::string CsvHeader();
std::string CsvRow(const BenchRow& row);

}  // namespace tarn::cli
