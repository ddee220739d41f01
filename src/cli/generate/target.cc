#include "cli/generate/target.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/console/lines.h"
#include "cli/console/output.h"
#include "cli/console/signals.h"
#include "text/utf8.h"

namespace tarn::cli {
namespace {

struct Totals {
  int64_t sources = 0, source_tokens = 0, tokens = 0;
  int64_t state_bytes = 0, memory_bytes = 0;  // the largest
  TargetTimes times;
};

std::vector<int32_t> EncodeSource(const LoadedModel& opened,
                                  const std::string& source) {
  auto tokens = opened.tokenizer.Encode(source);
  if (!tokens.ok()) {
    throw ExitError(kExitUsage, StrCat("--prompt: ", tokens.error().what()));
  }
  return std::move(tokens).Take();
}

std::string JsonLine(const LoadedModel& opened, const TargetResult& result,
                     const TargetTimes& times) {
  nlohmann::ordered_json root, list = nlohmann::ordered_json::array();
  for (const Hypothesis& h : result.hypotheses) {
    list.push_back(
        {{"text", ReplaceInvalidUtf8(opened.tokenizer.Decode(h.tokens))},
         {"score", h.score},
         {"log_probability", h.log_probability},
         {"tokens", h.tokens.size()},
         {"finished", h.finished}});
  }
  root["text"] = list.empty() ? "" : list[0]["text"];
  root["score"] = list.empty() ? nlohmann::ordered_json() : list[0]["score"];
  root["source_tokens"] = result.source_tokens;
  root["tokens"] = list.empty() ? nlohmann::ordered_json(0) : list[0]["tokens"];
  root["hypotheses"] = list;
  root["encode_ms"] = times.encode_ms;
  root["decode_ms"] = times.decode_ms;
  root["state_bytes"] = result.state_bytes;
  root["memory_bytes"] = result.memory_bytes;
  return root.dump() + "\n";
}

class Run {
 public:
  Run(const LoadedModel& opened, const TargetOptions& options, bool json)
      : opened_(opened), options_(options), json_(json) {}

  // Writes the targets of one source; false when there is no point in going on.
  bool Source(const std::string& text) {
    const std::vector<int32_t> source = EncodeSource(opened_, text);
    TargetTimes times;
    const TargetResult result =
        FindTargets(opened_, {&source, 1}, options_, times)[0];
    if (PendingSignal() != 0) return false;
    std::string best;
    if (!result.hypotheses.empty()) {
      const Hypothesis& first = result.hypotheses.front();
      best = opened_.tokenizer.Decode(first.tokens);
      totals_.tokens += static_cast<int64_t>(first.tokens.size());
    }
    payload_.Write(json_ ? JsonLine(opened_, result, times) : best + "\n");
    payload_.FlushIfDue();
    ++totals_.sources;
    totals_.source_tokens += result.source_tokens;
    totals_.state_bytes = std::max(totals_.state_bytes, result.state_bytes);
    totals_.memory_bytes = std::max(totals_.memory_bytes, result.memory_bytes);
    totals_.times.encode_ms += times.encode_ms;
    totals_.times.decode_ms += times.decode_ms;
    return !payload_.reader_gone();
  }

  int Finish() {
    payload_.Flush();
    if (payload_.reader_gone()) return kExitOk;
    std::fprintf(stderr,
                 "sources      %lld, %lld tokens, %.1f ms\n"
                 "targets      %lld tokens, %.1f ms, beam %lld\n"
                 "state        %lld bytes a hypothesis, %lld bytes a source\n",
                 static_cast<long long>(totals_.sources),
                 static_cast<long long>(totals_.source_tokens),
                 totals_.times.encode_ms,
                 static_cast<long long>(totals_.tokens),
                 totals_.times.decode_ms, static_cast<long long>(options_.beam),
                 static_cast<long long>(totals_.state_bytes),
                 static_cast<long long>(totals_.memory_bytes));
    const int signal = PendingSignal();
    return signal == 0 ? kExitOk : SignalExitCode(signal);
  }

 private:
  const LoadedModel& opened_;
  const TargetOptions options_;
  const bool json_;
  Payload payload_{stdout};
  Totals totals_;
};

}  // namespace

int GenerateTargets(const LoadedModel& opened, const std::string& prompt,
                    const TargetOptions& options, bool json) {
  Run run(opened, options, json);
  std::string line;
  if (prompt == "-") {
    LineReader lines("-");
    while (lines.Next(line) && run.Source(line)) {
    }
    return run.Finish();
  }
  std::istringstream lines(prompt);
  bool any = false;
  while (std::getline(lines, line)) {
    any = true;
    if (!run.Source(line)) break;
  }
  if (!any) run.Source("");  // an empty prompt is a source of no tokens
  return run.Finish();
}

}  // namespace tarn::cli
