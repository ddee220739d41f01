#include "cli/bench/report.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"

namespace tarn::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

// Text of `width` columns; a two-byte plus-minus sign counts as one.
std::string Padded(const std::string& text, size_t width, bool left) {
  const size_t shown = text.size() - (text.find('\xC2') != text.npos ? 1 : 0);
  const std::string space(width > shown ? width - shown : 0, ' ');
  return left ? text + space : space + text;
}

struct Column {
  const char* name;
  size_t width;
  bool left = false;
};

template <size_t kColumns>
std::string Head(const Column (&columns)[kColumns]) {
  std::string names = "|", line = "|";
  for (const Column& c : columns) {
    names += " " + Padded(c.name, c.width, c.left) + " |";
    line += " " + std::string(c.width - (c.left ? 0 : 1), '-') +
            (c.left ? " |" : ": |");
  }
  return names + "\n" + line + "\n";
}

template <size_t kColumns>
std::string Line(const Column (&columns)[kColumns],
                 const std::string (&cells)[kColumns]) {
  std::string line = "|";
  for (size_t i = 0; i < kColumns; ++i) {
    line += " " + Padded(cells[i], columns[i].width, columns[i].left) + " |";
  }
  return line + "\n";
}

constexpr Column kTests[] = {
    {"model", 30, true}, {"size", 10}, {"params", 10}, {"backend", 10, true},
    {"threads", 7},      {"test", 15}, {"t/s", 20}};
constexpr Column kSteps[] = {
    {"model", 30, true}, {"threads", 7},  {"test", 20}, {"sessions", 8},
    {"t/s", 20},         {"ms/step", 10}, {"GB/s", 8},  {"% of read", 9}};
constexpr Column kStates[] = {{"model", 30, true}, {"threads", 7},
                              {"depth", 8},        {"bytes/session", 14},
                              {"fork us", 10},     {"copy us", 10},
                              {"read GB/s", 9}};

std::string RateText(const BenchRow& row) {
  const std::vector<double> rates = row.Rates();
  return Fixed(Mean(rates), 2) + " \xC2\xB1 " +
         Fixed(StandardDeviation(rates), 2);
}

// Every key but the samples, in llama-bench's order.
Json Values(const BenchRow& row) {
  const std::vector<double> rates = row.Rates();
  const std::vector<double> ns(row.times.run_ns.begin(),
                               row.times.run_ns.end());
  Json j;
  j["build_commit"] = TARN_VERSION;
  j["build_number"] = 0;
  j["cpu_info"] = row.cpu;
  j["gpu_info"] = "";
  j["backends"] = "CPU";
  j["model_filename"] = row.path;
  j["model_type"] = row.model;
  j["model_size"] = row.weight_bytes;
  j["model_n_params"] = row.parameters;
  j["n_batch"] = row.test.sessions;
  j["n_ubatch"] = row.test.sessions;
  j["n_threads"] = row.threads;
  j["cpu_mask"] = "0x0";
  j["cpu_strict"] = false;
  j["poll"] = 50;
  j["type_k"] = row.cache_type;
  j["type_v"] = row.cache_type;
  j["n_gpu_layers"] = 0;
  j["split_mode"] = "none";
  j["main_gpu"] = 0;
  j["no_kv_offload"] = false;
  j["flash_attn"] = false;
  j["tensor_split"] = "0.00";
  j["use_mmap"] = true;
  j["embeddings"] = false;
  j["n_prompt"] = row.test.prompt;
  j["n_gen"] = row.test.generate;
  j["n_depth"] = row.test.depth;
  j["test_time"] = row.time;
  j["avg_ns"] = static_cast<int64_t>(Mean(ns));
  j["stddev_ns"] = static_cast<int64_t>(StandardDeviation(ns));
  j["avg_ts"] = Mean(rates);
  j["stddev_ts"] = StandardDeviation(rates);
  j["simd_target"] = row.simd_target;
  j["weight_type"] = row.weight_type;
  j["n_sessions"] = row.test.sessions;
  j["median_step_ns"] = row.times.median_step_ns;
  j["bytes_per_step"] = row.test.generate > 0 ? row.bytes_per_step : 0;
  j["bytes_per_s"] = row.BytesPerSecond();
  j["read_bytes_per_s"] = row.read_bandwidth;
  j["session_bytes"] = row.state.bytes;
  j["fork_us"] = row.state.fork_us;
  j["copy_us"] = row.state.copy_us;
  return j;
}

std::string StepLine(const BenchRow& row) {
  const double share = row.read_bandwidth > 0
                           ? 100 * row.BytesPerSecond() / row.read_bandwidth
                           : 0;
  return Line(kSteps, {row.model, std::to_string(row.threads), row.TestName(),
                       std::to_string(row.test.sessions), RateText(row),
                       Fixed(row.times.median_step_ns / 1e6, 3),
                       Fixed(row.BytesPerSecond() / 1e9, 2), Fixed(share, 1)});
}

}  // namespace

int64_t BenchRow::Tokens() const {
  return test.prompt + test.generate * test.sessions;
}

std::string BenchRow::TestName() const {
  std::string name =
      test.prompt > 0 ? StrCat("pp", test.prompt) : StrCat("tg", test.generate);
  if (test.sessions > 1) name += StrCat(" x ", test.sessions);
  if (test.depth > 0) name += StrCat(" @ d", test.depth);
  return name;
}

std::vector<double> BenchRow::Rates() const {
  std::vector<double> rates;
  for (const int64_t ns : times.run_ns) {
    rates.push_back(1e9 * static_cast<double>(Tokens()) /
                    static_cast<double>(ns));
  }
  return rates;
}

double BenchRow::BytesPerSecond() const {
  if (test.generate == 0 || times.median_step_ns <= 0) return 0;
  return 1e9 * static_cast<double>(bytes_per_step) / times.median_step_ns;
}

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

double StandardDeviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

std::string SizeText(int64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / 1048576;
  return mebibytes < 1024 ? Fixed(mebibytes, 2) + " MiB"
                          : Fixed(mebibytes / 1024, 2) + " GiB";
}

std::string CountText(int64_t count) {
  const double millions = static_cast<double>(count) / 1e6;
  return millions < 1000 ? Fixed(millions, 2) + " M"
                         : Fixed(millions / 1000, 2) + " B";
}

std::string MarkdownHeader() { return Head(kTests); }

std::string MarkdownRow(const BenchRow& row) {
  return Line(kTests,
              {row.model, SizeText(row.weight_bytes), CountText(row.parameters),
               "CPU " + row.simd_target, std::to_string(row.threads),
               row.TestName(), RateText(row)});
}

std::string MarkdownFooter(const std::vector<BenchRow>& rows) {
  std::string text = StrCat("\nbuild: ", TARN_VERSION, " (0)\n");
  std::string steps, states;
  const BenchRow* last = nullptr;  // of the states: one line a model and depth
  for (const BenchRow& row : rows) {
    if (row.test.generate > 0) steps += StepLine(row);
    if (last != nullptr && last->model == row.model &&
        last->threads == row.threads && last->test.depth == row.test.depth) {
      continue;
    }
    last = &row;
    states += Line(
        kStates,
        {row.model, std::to_string(row.threads), std::to_string(row.test.depth),
         std::to_string(row.state.bytes), Fixed(row.state.fork_us, 1),
         Fixed(row.state.copy_us, 1), Fixed(row.read_bandwidth / 1e9, 2)});
  }
  if (!steps.empty()) text += "\n" + Head(kSteps) + steps;
  if (!states.empty()) text += "\n" + Head(kStates) + states;
  return text;
}

std::string JsonRow(const BenchRow& row) {
  Json j = Values(row);
  j["samples_ns"] = row.times.run_ns;
  j["samples_ts"] = row.Rates();
  return j.dump();
}

std::string CsvHeader() {
  std::string line;
  const Json values = Values({});
  for (const auto& [key, value] : values.items()) {
    line += (line.empty() ? "" : ",") + key;
  }
  return line + "\n";
}

std::string CsvRow(const BenchRow& row) {
  std::string line;
  const Json values = Values(row);
  for (const auto& [key, value] : values.items()) {
    if (!line.empty()) line += ",";
    std::string text =
        value.is_string() ? value.get<std::string>() : value.dump();
    line += '"';
    for (const char c : text) {
      if (c == '"') line += '"';
      line += c;
    }
    line += '"';
  }
  return line + "\n";
}

}  // namespace tarn::cli
