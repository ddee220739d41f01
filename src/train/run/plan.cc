#include "train/run/plan.h"

#include <unistd.h>

#include "config/mixer_spec.h"
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

void CheckMemory(const TrainOptions& options, const DevicesHere& here) {
  const double machine = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                         static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const double need = MemoryEstimate(options, here.ranks);
  if (need <= machine) return;
  throw ArgumentError(
      "sizes (--batch, --seq-len, --d-model, --n-layers)",
      StrCat("at most ", machine / kGiB, " GiB, this machine's memory"),
      StrCat("about ", need / kGiB, " GiB"));
}

// Rows of models that read from left to right can be cut, where every layer has
// a state that a piece may begin from.
void CheckCut(const TrainOptions& options, int64_t pieces) {
  if (pieces == 1) return;
  const ModelConfig& model = options.model;
  constexpr char kFlag[] = "--sequence-parallel";
  if (model.arch != Arch::kDecoder) {
    throw ArgumentError(kFlag, "a decoder, whose rows can be cut into pieces",
                        StrCat("'", Name(model.arch), "'"));
  }
  for (int64_t i = 0; i < model.n_layers; ++i) {
    const AttentionKind kind = LayerView(model, i).attention;
    if (Spec(kind).state != nullptr) continue;
    throw ArgumentError(kFlag, "mixers whose sequences can be cut over ranks",
                        StrCat("'", Name(kind), "', which has no state"));
  }
  if (options.seq_len < pieces) {
    throw ArgumentError("--seq-len", StrCat(pieces, " or more, a token a rank"),
                        StrCat(options.seq_len));
  }
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

TrainState SavedState(const RunFolder& folder, const Given& given,
                      Device* began_on) {
  TrainState state = ReadState(folder);
  *began_on = state.options.device;
  state.options = ResumeOptions(state.options, given);
  state.options.out = folder.path;
  return state;
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
    return SavedState(folder, given, began_on);
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

// Floats a token that autograd keeps of a layer: norms, projections, weights of
// pairs, both halves of the feed-forward part.
double KeptFloats(const ModelConfig& view, int64_t seq_len) {
  double floats = 8 * static_cast<double>(view.d_model) +
                  3 * static_cast<double>(view.d_ff);
  for (const ModelConfig& mixer : MixerViews(view)) {
    const int64_t pairs = Spec(mixer.attention).can.pairs ? seq_len : 0;
    floats += 3 * static_cast<double>(mixer.n_heads) *
              static_cast<double>(mixer.d_key + mixer.d_value + pairs);
  }
  return floats;
}

}  // namespace

double MemoryEstimate(const TrainOptions& options, int64_t ranks) {
  const ModelConfig& model = options.model;
  // Ranks share rows, or the tokens of rows.
  const double rows = static_cast<double>(options.batch) *
                      static_cast<double>(options.seq_len) /
                      static_cast<double>(ranks);
  // Logits, their softmax and its gradient.
  double token = 3 * static_cast<double>(model.Outputs());
  for (const int64_t depth : {model.n_layers, model.n_decoder_layers}) {
    for (int64_t i = 0; i < depth; ++i) {
      token += KeptFloats(LayerView(model, i), options.seq_len);
    }
  }
  if (options.device != Device::kCpu) token = 0;
  // Weights, gradients and two running means.
  return 4 * (4 * static_cast<double>(Parameters(model)) + rows * token);
}

namespace {

// Reads the data of a plan whose options are checked, and what follows from
// them.
void ReadData(RunPlan& plan, const DevicesHere& here) {
  TrainOptions& options = plan.state.options;
  plan.data = ReadTaskData(
      options, plan.from_checkpoint ? plan.folder.path : options.init,
      plan.folder.path);
  const uint64_t fingerprint = plan.data->fingerprint();
  if (plan.from_checkpoint && fingerprint != plan.state.fingerprint) {
    throw FormatError("data", "the text the run began with", "another text");
  }
  plan.state.fingerprint = fingerprint;
  FinishConfig(options.model);
  CheckMemory(options, here);
}

}  // namespace

void CheckSharedInputs(const Given& given) {
  for (const auto& [name, value] : given) {
    if (name != "data" || value != "-") continue;
    throw ArgumentError("--data", "files, which every rank reads by itself",
                        "-, standard input");
  }
}

void CheckRun(const Given& given, const DevicesHere& here) {
  if (here.ranks > 1) CheckSharedInputs(given);
  RunFolder folder;
  folder.path = OutOf(given);
  if (Has(given, "resume") && HoldsCheckpoint(folder)) return;
  bool from_checkpoint = false;
  Device began_on = Device::kCpu;
  const TrainOptions options =
      StartState(folder, given, &from_checkpoint, &began_on).options;
  CheckMemory(options, here);
  CheckCut(options, here.pieces);
  CheckInputs(options);
}

RunPlan PlanRun(const Given& given, const DevicesHere& here) {
  RunPlan plan;
  plan.folder.path = OutOf(given);
  plan.state =
      StartState(plan.folder, given, &plan.from_checkpoint, &plan.began_on);
  TrainOptions& options = plan.state.options;
  CheckDevice(options, here);
  CheckMemory(options, here);
  CheckCut(options, here.pieces);
  CheckInputs(options);
  MakeWritableFolder(plan.folder.path);
  plan.lock = LockRun(plan.folder);
  RemoveLeftovers(plan.folder.path);
  const int64_t weights = 4 * Parameters(options.model);
  // Old and new checkpoint (weights and two means), last and best model.
  CheckFreeSpace(plan.folder.path, static_cast<uint64_t>(10 * weights));

  // From here on it takes time: everything cheap has been checked.
  ReadData(plan, here);
  if (!plan.from_checkpoint) RemoveRun(plan.folder);
  return plan;
}

RunPlan FollowRun(const Given& given, const DevicesHere& here,
                  bool from_checkpoint) {
  RunPlan plan;
  plan.folder.path = OutOf(given);
  plan.from_checkpoint = from_checkpoint;
  if (from_checkpoint) {
    plan.state = SavedState(plan.folder, given, &plan.began_on);
  } else {
    plan.state.options = BuildOptions(given);
  }
  CheckDevice(plan.state.options, here);
  CheckInputs(plan.state.options);
  ReadData(plan, here);
  return plan;
}

}  // namespace tarn::train
