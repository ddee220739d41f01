#include "train/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <time.h>
#include <torch/cuda.h>

#include <chrono>
#include <cmath>

#include "core/error.h"
#include "core/rng.h"
#include "kernels/simd_target.h"
#include "core/folder.h"
#include "train/objectives/autocast.h"
#include "train/objectives/objective.h"
#include "train/optim/optimizer.h"
#include "train/run/plan.h"

namespace tarn::train {
namespace {

// Streams of the seed besides those of the windows (the steps, below 2^40).
constexpr uint64_t kWeightStream = ~uint64_t{0};
constexpr uint64_t kDropoutStream = ~uint64_t{1};

void SeedTorch(uint64_t seed, uint64_t stream, int64_t step) {
  torch::manual_seed(Rng(seed, stream, static_cast<uint64_t>(step)).Next());
}

// CPU time of all threads since the process began.
double ProcessCpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

NamedTensors ParametersOf(const nn::ModelImpl& model) {
  NamedTensors parameters;
  for (const auto& item : model.named_parameters()) {
    parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

// One run from its first step in this process to its last. Members are in the
// order in which they are made: the model needs the plan, the optimiser the
// model's parameters.
class Run {
 public:
  Run(RunPlan plan, Reporter& reporter);
  TrainResult Go(const std::atomic<bool>& stop);

 private:
  double Elapsed() const;
  double CpuSeconds() const;
  void Describe(Reporter& reporter);
  // One update: rows, gradient, clipping, rate, figures. Throws NumericError
  // with the weights as they were.
  StepFigures Step(int64_t step);
  // Fills in the figures; saves the model when it is the best so far.
  void LookAtHeldOut(StepFigures& figures);
  void WriteDescription(const std::string& dir);
  void SaveBest();
  void SaveCheckpoint();
  [[noreturn]] void FailAt(int64_t step, const std::string& what);

  RunPlan plan_;
  Reporter& reporter_;
  TrainOptions& options_;
  TrainState& state_;
  int64_t saved_step_ = -1;  // of the newest checkpoint
  std::shared_ptr<nn::ModelImpl> model_;
  Optimizer optimizer_;
  std::unique_ptr<Objective> objective_;
  Metric metric_;
  std::unique_ptr<StepLog> log_;
  std::chrono::steady_clock::time_point start_;
  double cpu_start_s_ = 0;  // of the process's own clock; < 0 where parts of
                            // the run came before
};

torch::DeviceType TypeOf(Device device) {
  return device == Device::kCuda ? torch::kCUDA : torch::kCPU;
}

// The weights are drawn on the CPU: a seed means the same on every device.
std::shared_ptr<nn::ModelImpl> NewModel(const TrainOptions& options) {
  SeedTorch(options.seed, kWeightStream, 0);
  const auto model = nn::MakeModel(options.model);
  model->to(TypeOf(options.device));
  return model;
}

Run::Run(RunPlan plan, Reporter& reporter)
    : plan_(std::move(plan)),
      reporter_(reporter),
      options_(plan_.state.options),
      state_(plan_.state),
      model_(NewModel(options_)),
      optimizer_(ParametersOf(*model_), options_.optimizer,
                 options_.weight_decay, options_.clip),
      objective_(MakeObjective(plan_)),
      metric_(MetricOf(options_)) {
  if (plan_.from_checkpoint) {
    nn::LoadWeights(*model_, plan_.folder.checkpoint() + "/model.safetensors");
    optimizer_.Load(plan_.folder.checkpoint() + "/optimizer.safetensors");
    if (optimizer_.updates() != state_.step) {
      throw FormatError(plan_.folder.checkpoint(),
                        StrCat(state_.step, " updates, as train.json says"),
                        StrCat(optimizer_.updates()));
    }
    saved_step_ = state_.step;
  } else if (!options_.init.empty()) {
    nn::LoadWeights(*model_, options_.init + "/model.safetensors");
  }
  WriteDescription(plan_.folder.path);
  log_ = std::make_unique<StepLog>(plan_.folder.log(), state_.log_bytes);
  // As if the parts of a resumed run had followed each other without a gap.
  start_ = std::chrono::steady_clock::now() -
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(
               std::chrono::duration<double>(state_.elapsed_s));
  cpu_start_s_ = ProcessCpuSeconds() - state_.cpu_s;
  model_->train();
}

double Run::Elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                       start_)
      .count();
}

void Run::Describe(Reporter& reporter) {
  int64_t parameters = 0;
  for (const auto& tensor : model_->parameters()) parameters += tensor.numel();
  reporter.Note(plan_.data->Describe());
  const ModelConfig& model = options_.model;
  const bool attends = model.arch == Arch::kDecoder ||
                       model.arch == Arch::kEncoder ||
                       model.arch == Arch::kSeq2seq;
  reporter.Note(StrCat(Name(model.arch), attends ? " of " : "",
                       attends ? LayersText(model) : "",
                       attends ? " attention" : "", ", ", parameters,
                       " parameters, ", options_.threads, " threads, ",
                       SimdTargetName()));
  const bool narrow = options_.precision == Precision::kBF16;
  if (narrow || options_.device != Device::kCpu) {
    reporter.Note(StrCat("on ", DeviceName(options_.device),
                         narrow ? ", products in bf16" : ""));
    if (narrow && NarrowProductsCostMore(TypeOf(options_.device))) {
      reporter.Note(
          "bf16 does not pay here: this processor has no AMX, and its products "
          "are faster in f32");
    }
  }
  if (plan_.from_checkpoint) {
    const bool moved = plan_.began_on != options_.device;
    reporter.Note(StrCat(
        "resumed at step ", state_.step,
        moved ? StrCat(", which ", DeviceName(plan_.began_on),
                       " made: the bits of the rest are those of ",
                       DeviceName(options_.device))
              : std::string()));
  } else if (options_.resume) {
    reporter.Note("no checkpoint yet: beginning at step 0");
  }
}

double Run::CpuSeconds() const { return ProcessCpuSeconds() - cpu_start_s_; }

StepFigures Run::Step(int64_t step) {
  const double began = Elapsed();
  StepFigures figures;
  figures.step = step;
  figures.device = options_.device;
  figures.precision = options_.precision;
  SeedTorch(options_.seed, kDropoutStream, step);
  model_->RedrawFeatures(step);
  AddGradient(*objective_, *model_, options_, step, figures);
  if (!std::isfinite(figures.loss)) {
    FailAt(step, StrCat("the loss is ", figures.loss));
  }
  figures.lr = LearningRate(options_.schedule, step, state_.plateau.drops);
  figures.grad_norm = optimizer_.Step(figures.lr);
  if (!std::isfinite(figures.grad_norm)) {
    FailAt(step, StrCat("the gradient's norm is ", figures.grad_norm));
  }
  figures.tokens_per_s =
      static_cast<double>(figures.tokens) / std::max(Elapsed() - began, 1e-9);
  state_.tokens += figures.tokens;
  figures.tokens = state_.tokens;
  state_.step = step;
  return figures;
}

void Run::FailAt(int64_t step, const std::string& what) {
  throw NumericError(StrCat("step ", step, ": ", what,
                            "; the last good checkpoint is ",
                            plan_.folder.checkpoint(), " (step ", saved_step_,
                            "); a lower --lr or a longer --warmup may help"));
}

void Run::LookAtHeldOut(StepFigures& figures) {
  objective_->LookAtHeldOut(*model_, figures);
  if (!std::isfinite(*figures.val_loss)) {
    FailAt(figures.step, StrCat("the held-out loss is ", *figures.val_loss));
  }
  state_.last_held_out = MetricValue(metric_, figures);
  const double value = *state_.last_held_out;
  if (figures.step % options_.eval_every == 0) {
    std::optional<double>& best = state_.plateau.best;
    const bool better = !best || IsBetter(metric_, value, *best);
    if (better) best = value;
    CountLook(state_.plateau, better, options_.schedule.patience);
  }
  if (!state_.best_held_out ||
      IsBetter(metric_, value, *state_.best_held_out)) {
    state_.best_held_out = state_.last_held_out;
    state_.best_step = figures.step;
    SaveBest();
  }
}

void Run::WriteDescription(const std::string& dir) {
  WriteModelFiles(dir, options_.model, plan_.data->TokenizerJson(),
                  plan_.data->LabelsJson());
}

void Run::SaveBest() {
  ReplaceFolder(plan_.folder.best(), std::to_string(state_.step),
                [&](const std::string& dir) {
                  WriteDescription(dir);
                  nn::SaveWeights(*model_, dir + "/model.safetensors");
                });
}

// The model is written first: whoever finds a checkpoint of the last step finds
// the finished model beside it.
void Run::SaveCheckpoint() {
  // A finite loss does not mean finite weights: the last update may have been
  // too large. Such a checkpoint must not replace a good one.
  for (const auto& item : model_->named_parameters()) {
    if (!item.value().isfinite().all().item<bool>()) {
      FailAt(state_.step, item.key() + " is not finite");
    }
  }
  state_.elapsed_s = Elapsed();
  state_.cpu_s = CpuSeconds();
  state_.log_bytes = log_->bytes();
  log_->Sync();
  nn::SaveWeights(*model_, plan_.folder.model());
  ReplaceFolder(plan_.folder.checkpoint(), std::to_string(state_.step),
                [&](const std::string& dir) {
                  nn::SaveWeights(*model_, dir + "/model.safetensors");
                  optimizer_.Save(dir + "/optimizer.safetensors");
                  WriteFileAtomically(dir + "/train.json",
                                      TrainStateToJson(state_));
                });
  saved_step_ = state_.step;
}

TrainResult Run::Go(const std::atomic<bool>& stop) {
  Describe(reporter_);
  const int64_t steps = options_.schedule.steps;
  if (!plan_.from_checkpoint) SaveCheckpoint();
  while (state_.step < steps && !stop) {
    StepFigures figures = Step(state_.step + 1);
    const bool last = state_.step == steps;
    if (last || state_.step % options_.eval_every == 0) LookAtHeldOut(figures);
    figures.elapsed_s = Elapsed();
    figures.cpu_s = CpuSeconds();
    log_->Write(figures);
    reporter_.Step(figures, steps);
    // The line is in the log before the checkpoint counts it.
    if (last || stop || state_.step % options_.checkpoint_every == 0) {
      SaveCheckpoint();
    }
    if (options_.sample_every > 0 &&
        (last || state_.step % options_.sample_every == 0)) {
      reporter_.Sample(objective_->Sample(*model_));
    }
  }
  // A stop came after the last check, or before the first step.
  if (saved_step_ != state_.step) SaveCheckpoint();
  TrainResult result;
  result.step = state_.step;
  result.finished = state_.step == steps;
  result.elapsed_s = state_.elapsed_s;
  result.last_held_out = state_.last_held_out;
  result.best_held_out = state_.best_held_out;
  result.best_step = state_.best_step;
  result.metric = metric_;
  result.out = plan_.folder.path;
  for (const std::string& path : options_.data) {
    result.reads_stdin = result.reads_stdin || path == "-";
  }
  return result;
}

// One interop thread and a fixed pool: sums are then split the same way in
// every run. Denormals are kept, as in the runtime.
void SetUpTorch(int64_t threads) {
  at::set_num_threads(static_cast<int>(threads));
  if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);
  at::globalContext().setFlushDenormal(false);
  // f32 means float32 on every device: cuDNN would shorten convolutions and
  // recurrent products to 10 bits.
  at::globalContext().setAllowTF32CuDNN(false);
}

}  // namespace

TrainResult Train(const Given& given, const std::atomic<bool>& stop,
                  Reporter& reporter) {
  RunPlan plan = PlanRun(given, {.cuda = at::hasCUDA() &&
                                         torch::cuda::device_count() > 0});
  SetUpTorch(plan.state.options.threads);
  return Run(std::move(plan), reporter).Go(stop);
}

}  // namespace tarn::train
