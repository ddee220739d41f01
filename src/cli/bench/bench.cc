// `tarn bench`: prefill and generation speed in llama-bench's terms.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/report.h"
#include "cli/bench/run.h"
#include "cli/cli.h"
#include "cli/console/output.h"
#include "cli/console/parse.h"
#include "cli/console/signals.h"
#include "core/executor.h"
#include "kernels/memory_read/memory_read.h"
#include "kernels/simd_target.h"

namespace tarn::cli {
namespace {

struct BenchFlags {
  std::string dir;
  std::vector<int64_t> prompts{512}, generated{128}, depths{0}, threads{0};
  std::vector<int64_t> batches{1, 4, 16, 64};
  std::vector<std::string> weights{"auto"}, caches{"f32"};
  bool exact = false;
  int64_t batch_steps = 32;
  BenchRuns runs;
  std::string output = "md";
};

constexpr char kBenchFooter[] =
    "Lists are separated by commas; every combination is run. pp: tokens of a\n"
    "prompt consumed at once; tg: tokens one after the other. Times include\n"
    "neither tokenizer nor sampler. Depths in ascending order continue from\n"
    "each other. The first table has llama-bench's columns. The second\n"
    "compares each step with the bandwidth at which the same threads read a\n"
    "buffer of the weights' size; the third gives the time to fork a state,\n"
    "and to copy it, which the first step of a fork does. json and csv have\n"
    "llama-bench's keys, followed by tarn's.\n\n"
    "Examples:\n"
    "  tarn bench models/demo\n"
    "  tarn bench models/demo -p 0 -n 128 -t 1,2 --weights f32,bf16\n"
    "  tarn bench models/demo -n 64 -d 0,4096 --batch 0 -o json\n";

void Declare(ArgumentParser& parser, BenchFlags& flags) {
  parser.Add("DIR", flags.dir, "model directory or GGUF file").Required();
  const auto list = [&parser](const char* name, std::vector<int64_t>& values,
                              int64_t high, const char* help) {
    parser.Add(name, values, help).Commas().Whole(0, high).ShowDefault();
  };
  constexpr int64_t kMost = int64_t{1} << 32;
  list("-p,--n-prompt", flags.prompts, kMost, "prompt lengths; 0: none");
  list("-n,--n-gen", flags.generated, kMost, "tokens to generate; 0: none");
  list("-d,--n-depth", flags.depths, kMost, "tokens of context before a test");
  list("-t,--threads", flags.threads, 1024, "0: as many as there are cores");
  list("--batch", flags.batches, 65536, "sessions that step together; 0: none");
  parser
      .Add("--batch-steps", flags.batch_steps,
           "tokens of each session in batch tests")
      .Whole(1, kMost)
      .ShowDefault();
  parser.Add("-r,--repetitions", flags.runs.repetitions, "runs of each test")
      .Whole(1, 1000000)
      .ShowDefault();
  parser
      .Add("--warm-ups", flags.runs.warm_ups,
           "runs of each test that are not measured")
      .Whole(0, 1000000)
      .ShowDefault();
  parser.Add("--weights", flags.weights, kWeightsHelp)
      .Commas()
      .OneOf(WeightTypeWords())
      .ShowDefault();
  parser
      .Add("--cache", flags.caches,
           "how layers of softmax attention hold keys and values")
      .Commas()
      .OneOf(CacheTypeWords())
      .ShowDefault();
  parser.AddFlag("--exact", flags.exact, kExactHelp);
  parser.Add("-o,--output", flags.output, "output format")
      .OneOf({"md", "csv", "json"})
      .ShowDefault();
  parser.Footer(kBenchFooter);
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) {
      return line.substr(colon + 2);
    }
  }
  return "";
}

std::string TimeText() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::vector<BenchTest> Tests(const BenchFlags& flags, int64_t depth) {
  std::vector<BenchTest> tests;
  for (const int64_t n : flags.prompts) {
    if (n > 0) tests.push_back({.prompt = n, .depth = depth});
  }
  for (const int64_t n : flags.generated) {
    if (n > 0) tests.push_back({.generate = n, .depth = depth});
  }
  for (const int64_t sessions : flags.batches) {
    if (sessions == 0 || flags.batch_steps == 0) continue;
    tests.push_back(
        {.generate = flags.batch_steps, .depth = depth, .sessions = sessions});
  }
  return tests;
}

// A model with learned positions has room for so many tokens: sizes that were
// not asked for follow, others are refused before any work.
void FitPositions(BenchFlags& flags, const BenchFlags& defaults, int64_t room) {
  const auto fit = [&](const char* name, std::vector<int64_t>& values,
                       const std::vector<int64_t>& usual, int64_t depth) {
    for (int64_t& value : values) {
      if (value <= room - depth) continue;
      if (values != usual) {
        throw ArgumentError(name,
                            StrCat("at most ", room - depth, ": the model has ",
                                   room, " learned positions (max_positions)"),
                            StrCat(value));
      }
      value = room - depth;
    }
  };
  const int64_t depth =
      *std::max_element(flags.depths.begin(), flags.depths.end());
  fit("--n-depth", flags.depths, defaults.depths, 0);
  fit("--n-prompt", flags.prompts, defaults.prompts, depth);
  fit("--n-gen", flags.generated, defaults.generated, depth);
  std::vector<int64_t> steps = {flags.batch_steps};
  fit("--batch-steps", steps, {defaults.batch_steps}, depth);
  flags.batch_steps = steps[0];
}

// Writes rows as they come, so that an interrupted run leaves what it has.
class BenchReport {
 public:
  explicit BenchReport(const std::string& format)
      : payload_(stdout), format_(format) {}

  // Called before the first row, once a model is open: one that cannot be
  // opened leaves stdout empty.
  void Begin() {
    if (begun_) return;
    begun_ = true;
    if (format_ == "md") payload_.Write(MarkdownHeader());
    if (format_ == "csv") payload_.Write(CsvHeader());
    if (format_ == "json") payload_.Write("[\n");
    payload_.Flush();
  }
  void Add(BenchRow row) {
    if (format_ == "csv") payload_.Write(CsvRow(row));
    if (format_ == "json") {
      // Each row is a line, which is written whole as soon as it is there.
      payload_.Write((rows_.empty() ? "  " : " ,") + JsonRow(row) + "\n");
    }
    // Rows of the batch belong to the second table only.
    if (format_ == "md" && row.test.sessions == 1) {
      payload_.Write(MarkdownRow(row));
    }
    payload_.Flush();
    rows_.push_back(std::move(row));
  }
  void End() {
    if (format_ == "md") payload_.Write(MarkdownFooter(rows_));
    if (format_ == "json") payload_.Write("]\n");
    payload_.Flush();
  }
  bool reader_gone() const { return payload_.reader_gone(); }

 private:
  Payload payload_;
  std::string format_;
  bool begun_ = false;
  std::vector<BenchRow> rows_;
};

Model OpenForBench(const BenchFlags& flags, const ModelFlags& how) {
  Result<Model> model = Model::Open(flags.dir, how.Options());
  if (!model.ok()) throw ExitError(kExitBadModel, model.error().what());
  return std::move(model).Take();
}

// The format that holds most of the weights.
std::string WeightsText(const Model& model) {
  const auto formats = model.weight_formats();
  const auto most = std::max_element(
      formats.begin(), formats.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->first->name;
}

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(c));
  return text;
}

BenchRow Describe(const BenchFlags& flags, const Model& model) {
  BenchRow row;
  std::string size = CountText(model.parameters());
  size.erase(size.find(' '), 1);
  row.weight_type = WeightsText(model);
  row.model = StrCat(LayersText(model.config()), " ", size, " ",
                     Upper(row.weight_type));
  row.path = flags.dir;
  row.cache_type = Name(model.options().cache);
  row.simd_target = SimdTargetName();
  row.cpu = CpuName();
  row.weight_bytes = model.weight_bytes();
  row.parameters = model.parameters();
  row.threads = model.threads();
  return row;
}

void RunModel(BenchFlags flags, const ModelFlags& how,
              const std::function<bool()>& stopped, BenchReport& report) {
  const Model model = OpenForBench(flags, how);
  if (model.config().arch != Arch::kDecoder) {
    throw ExitError(
        kExitBadModel,
        StrCat(flags.dir,
               ": want a language model (arch 'decoder'), got arch '",
               Name(model.config().arch), "'"));
  }
  FitPositions(flags, BenchFlags(), model.max_tokens());
  report.Begin();
  BenchRow row = Describe(flags, model);
  {
    ThreadPool pool(model.threads());
    const int64_t bytes = BytesPerStep(model, {.generate = 1});
    row.read_bandwidth = ReadBandwidth(bytes, 15, pool);
    std::fprintf(stderr, "%s: %d threads read %s at %.2f GB/s\n",
                 row.model.c_str(), model.threads(), SizeText(bytes).c_str(),
                 row.read_bandwidth / 1e9);
  }
  State start(model);
  for (const int64_t depth : flags.depths) {
    if (stopped()) return;
    // Increasing depths continue from each other.
    if (depth < start.position()) start = State(model);
    AdvanceTo(model, depth, start);
    row.state = MeasureState(model, start, flags.runs.repetitions);
    for (const BenchTest& test : Tests(flags, depth)) {
      row.test = test;
      row.time = TimeText();
      row.bytes_per_step = BytesPerStep(model, test);
      row.times = RunBenchTest(model, test, start, flags.runs, stopped);
      if (row.times.run_ns.empty()) return;
      report.Add(row);
    }
  }
}

}  // namespace

int Bench(int argc, char** argv) {
  BenchFlags flags;
  ArgumentParser parser("Measures prefill, generation and states of a model.",
                        "tarn bench");
  Declare(parser, flags);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  BenchReport report(flags.output);
  const auto stopped = [&report] {
    return PendingSignal() != 0 || report.reader_gone();
  };
  for (const int64_t threads : flags.threads) {
    for (const std::string& weights : flags.weights) {
      for (const std::string& cache : flags.caches) {
        if (stopped()) break;
        RunModel(flags,
                 {static_cast<int>(threads), weights, flags.exact, cache},
                 stopped, report);
      }
    }
  }
  report.End();
  const int signal = PendingSignal();
  return signal == 0 ? kExitOk : SignalExitCode(signal);
}

}  // namespace tarn::cli
