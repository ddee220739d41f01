#include "train/run/plan.h"

#include <unistd.h>

#include "core/error.h"
#include "core/folder.h"

namespace tarn::train {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

int64_t Parameters(const ModelConfig& config) {
  int64_t count = 0;
  for (const auto& [name, shape] : WeightShapes(config)) {
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    count += elements;
  }
  return count;
}

void CheckMemory(const TrainOptions& options) {
  const double machine = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                         static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const double need = MemoryEstimate(options);
  if (need <= machine) return;
  throw ArgumentError(
      "sizes (--batch, --seq-len, --d-model, --n-layers)",
      StrCat("at most ", machine / kGiB, " GiB, this machine's memory"),
      StrCat("about ", need / kGiB, " GiB"));
}

void CheckDevice(const TrainOptions& options, const DevicesHere& here) {
  if (options.device == Device::kCpu || here.cuda) return;
  throw DeviceError("--device",
                    StrCat(DeviceName(Device::kCpu), ", the one device here (",
                           here.no_cuda, ")"),
                    DeviceName(options.device));
}

std::string OutOf(const Given& given) {
  std::string out;
  for (const auto& [name, value] : given) {
    if (name == "out") out = value;
  }
  if (out.empty()) throw ArgumentError("--out", "a directory", "nothing");
  return out;
}

bool Has(const Given& given, const char* wanted) {
  for (const auto& [name, value] : given) {
    if (name == wanted) return true;
  }
  return false;
}

// Resuming a folder that holds nothing yet begins the run: a process may have
// been killed before its first checkpoint.
TrainState StartState(const RunFolder& folder, const Given& given,
                      bool* from_checkpoint, Device* began_on) {
  TrainState state;
  *from_checkpoint = Has(given, "resume") && HoldsCheckpoint(folder);
  if (*from_checkpoint) {
    RecoverFolder(folder.checkpoint());
    RecoverFolder(folder.best());
    state = ReadState(folder);
    *began_on = state.options.device;
    state.options = ResumeOptions(state.options, given);
    state.options.out = folder.path;
    return state;
  }
  state.options = BuildOptions(given);
  if (state.options.data.empty() &&
      state.options.generator.kind == GeneratorKind::kNone) {
    throw ArgumentError(
        "--data", "one text or more",
        state.options.resume
            ? "nothing, and " + folder.path + " holds no checkpoint to resume"
            : "nothing");
  }
  if (HoldsRun(folder) && !state.options.resume && !state.options.overwrite) {
    throw ArgumentError("--out",
                        "a folder without a run, --resume or --overwrite",
                        folder.path + ", which holds a run");
  }
  return state;
}

}  // namespace

double MemoryEstimate(const TrainOptions& options) {
  const ModelConfig& model = options.model;
  const double rows =
      static_cast<double>(options.batch) * static_cast<double>(options.seq_len);
  const double heads = static_cast<double>(model.n_heads);
  const double width = static_cast<double>(model.d_model);
  // Floats a token that autograd keeps: norms, projections, both halves of
  // the feed-forward part; logits, their softmax and its gradient.
  const double layer =
      8 * width +
      3 * heads * static_cast<double>(model.d_key + model.d_value) +
      3 * static_cast<double>(model.d_ff);
  double token = 3 * static_cast<double>(model.Outputs());
  for (const int64_t depth : {model.n_layers, model.n_decoder_layers}) {
    for (int64_t i = 0; i < depth; ++i) {
      token += layer;
      if (LayerView(model, i).attention != AttentionKind::kFull) continue;
      token += 3 * heads * static_cast<double>(options.seq_len);
    }
  }
  if (options.device != Device::kCpu) token = 0;
  // Weights, gradients and two running means.
  return 4 * (4 * static_cast<double>(Parameters(model)) + rows * token);
}

RunPlan PlanRun(const Given& given, const DevicesHere& here) {
  RunPlan plan;
  plan.folder.path = OutOf(given);
  plan.state = StartState(plan.folder, given, &plan.from_checkpoint,
                          &plan.began_on);
  TrainOptions& options = plan.state.options;
  CheckDevice(options, here);
  CheckMemory(options);
  CheckInputs(options);
  MakeWritableFolder(plan.folder.path);
  plan.lock = LockRun(plan.folder);
  RemoveLeftovers(plan.folder.path);
  const int64_t weights = 4 * Parameters(options.model);
  // Old and new checkpoint (weights and two means), last and best model.
  CheckFreeSpace(plan.folder.path, static_cast<uint64_t>(10 * weights));

  // From here on it takes time: everything cheap has been checked.
  plan.data = ReadTaskData(
      options, plan.from_checkpoint ? plan.folder.path : options.init,
      plan.folder.path);
  const uint64_t fingerprint = plan.data->fingerprint();
  if (plan.from_checkpoint && fingerprint != plan.state.fingerprint) {
    throw FormatError("data", "the text the run began with", "another text");
  }
  plan.state.fingerprint = fingerprint;
  FinishConfig(options.model);
  CheckMemory(options);
  if (!plan.from_checkpoint) RemoveRun(plan.folder);
  return plan;
}

}  // namespace tarn::train
