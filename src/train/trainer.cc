#include "train/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <time.h>
#include <torch/cuda.h>

#include <chrono>
#include <cmath>

#include "core/error.h"
#include "core/folder.h"
#include "core/rng.h"
#include "kernels/simd_target.h"
#include "train/objectives/autocast.h"
#include "train/objectives/objective.h"
#include "train/optim/optimizer.h"
#include "train/run/plan.h"

namespace tarn::train {
namespace {

// Streams of the seed besides those of the windows (the steps, below 2^40).
constexpr uint64_t kWeightStream = ~uint64_t{0};
constexpr uint64_t kDropoutStream = ~uint64_t{1};
// And those of the ranks after the first.
constexpr uint64_t kRankStreams = uint64_t{1} << 62;

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
  Run(RunPlan plan, const RunRanks& ranks, Reporter& reporter);
  TrainResult Go(const std::atomic<bool>& stop);

 private:
  double Elapsed() const;
  double CpuSeconds() const;
  void Describe(Reporter& reporter);
  // One update: rows, gradient, clipping, rate, figures. Throws NumericError
  // with the weights as they were.
  StepFigures Step(int64_t step);
  // Fills in the figures; saves the model when it is the best so far.
  void EvaluateHeldOut(StepFigures& figures);
  void WriteDescription(const std::string& dir);
  void SaveBest();
  void SaveCheckpoint();
  [[noreturn]] void FailAt(int64_t step, const std::string& what);

  // The figures of held-out data, which the first rank measures, to all.
  void ShareHeldOut(StepFigures& figures);
  // Whether any rank was asked to stop.
  bool Stopping(const std::atomic<bool>& stop);

  RunPlan plan_;
  RunRanks all_ranks_;
  Ranks& ranks_;  // all of them
  Reporter& reporter_;
  TrainOptions& options_;
  TrainState& state_;
  int64_t saved_step_ = -1;  // of the newest checkpoint
  std::shared_ptr<nn::ModelImpl> model_;
  std::unique_ptr<Optimizer> optimizer_;
  // Null where gradients are not summed while they are computed: with one rank,
  // and where the optimiser does it.
  std::unique_ptr<GradientExchange> exchange_;
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

Run::Run(RunPlan plan, const RunRanks& ranks, Reporter& reporter)
    : plan_(std::move(plan)),
      all_ranks_(ranks),
      ranks_(ranks.all),
      reporter_(reporter),
      options_(plan_.state.options),
      state_(plan_.state),
      model_(NewModel(options_)),
      optimizer_(MakeOptimizer(
          ParametersOf(*model_),
          {options_.optimizer, options_.weight_decay, options_.clip}, ranks_,
          options_.shard_optimizer)),
      exchange_(options_.shard_optimizer
                    ? nullptr
                    : ranks_.Exchange(model_->parameters())),
      objective_(MakeObjective(plan_)),
      metric_(MetricOf(options_)) {
  if (plan_.from_checkpoint) {
    nn::LoadWeights(*model_, plan_.folder.checkpoint() + "/model.safetensors");
    optimizer_->Load(plan_.folder.checkpoint() + "/optimizer.safetensors");
    if (optimizer_->updates() != state_.step) {
      throw FormatError(plan_.folder.checkpoint(),
                        StrCat(state_.step, " updates, as train.json says"),
                        StrCat(optimizer_->updates()));
    }
    saved_step_ = state_.step;
  } else if (!options_.init.empty()) {
    nn::LoadWeights(*model_, options_.init);
  }
  // The same numbers everywhere, also where processors draw or read
  // differently.
  std::vector<torch::Tensor> tensors = model_->parameters();
  for (const torch::Tensor& buffer : model_->buffers()) {
    tensors.push_back(buffer);
  }
  {
    const torch::NoGradGuard no_grad;
    ranks_.Broadcast(tensors);
  }
  // The others read the files above while the first had not written any.
  ranks_.Wait();
  if (ranks_.is_first()) {
    WriteDescription(plan_.folder.path);
    log_ = std::make_unique<StepLog>(plan_.folder.log(), state_.log_bytes);
  }
  // Clocks start as if the parts of a resumed run had followed each other
  // without a gap.
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
  reporter.Note(StrCat(
      Name(model.arch), attends ? " of " : "", attends ? LayersText(model) : "",
      attends ? " attention" : "", ", ", parameters, " parameters, ",
      options_.threads, " threads, ", SimdTargetName()));
  const bool narrow = options_.precision == Precision::kBF16;
  if (narrow || options_.device != Device::kCpu) {
    reporter.Note(StrCat("on ", DeviceName(options_.device),
                         narrow ? ", products in bf16" : ""));
    if (narrow && NarrowProductsCostMore(TypeOf(options_.device))) {
      reporter.Note(
          "bf16 is slower here: this processor has no AMX, and its products "
          "are faster in f32");
    }
  }
  if (ranks_.size() > 1) {
    const RowShare share = all_ranks_.RowsOf(options_.batch);
    std::string tokens;
    if (const nn::SequenceRanks* sequence = all_ranks_.sequence) {
      const nn::SequenceCut cut = {sequence, options_.seq_len};
      tokens =
          StrCat(", of each the tokens ", cut.begin(), " to ", cut.end() - 1);
    }
    reporter.Note(
        StrCat("rank ", ranks_.rank(), " of ", ranks_.size(), ": ", share.count,
               " of the ", options_.batch, " rows of a pass", tokens, "; ",
               optimizer_->state_bytes(), " bytes of optimiser state"));
    if (plan_.from_checkpoint && state_.ranks != ranks_.size()) {
      reporter.Note(StrCat("the checkpoint is of ", state_.ranks,
                           " ranks: the same rows are redistributed, and sums "
                           "are taken in another order"));
    }
  }
  if (plan_.from_checkpoint) {
    const bool moved = plan_.began_on != options_.device;
    reporter.Note(
        StrCat("resumed at step ", state_.step,
               moved ? StrCat(", which ", DeviceName(plan_.began_on),
                              " made: from here results match those of ",
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
  // What is dropped differs from rank to rank, as it does from row to row.
  SeedTorch(options_.seed,
            ranks_.is_first()
                ? kDropoutStream
                : kRankStreams + static_cast<uint64_t>(ranks_.rank()),
            step);
  model_->RedrawFeatures(step);
  const double exchanged = all_ranks_.seconds();
  const RankedSequence* sequence = all_ranks_.sequence;
  const int64_t given = sequence == nullptr ? 0 : sequence->bytes();
  AddGradient(*objective_, *model_, options_, step, all_ranks_, exchange_.get(),
              figures);
  if (!std::isfinite(figures.loss)) {
    FailAt(step, StrCat("the loss is ", figures.loss));
  }
  figures.lr = LearningRate(options_.schedule, step, state_.plateau.drops);
  figures.grad_norm = optimizer_->Step(figures.lr);
  if (ranks_.size() > 1) {
    figures.ranks = ranks_.size();
    figures.exchange_s = all_ranks_.seconds() - exchanged;
    if (sequence != nullptr) figures.sequence_bytes = sequence->bytes() - given;
  }
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

void Run::EvaluateHeldOut(StepFigures& figures) {
  if (all_ranks_.evaluates()) {
    objective_->EvaluateHeldOut(*model_, all_ranks_.sequence, figures);
  }
  ShareHeldOut(figures);
  if (!std::isfinite(*figures.val_loss)) {
    FailAt(figures.step, StrCat("the held-out loss is ", *figures.val_loss));
  }
  state_.last_held_out = MetricValue(metric_, figures);
  const double value = *state_.last_held_out;
  if (figures.step % options_.eval_every == 0) {
    std::optional<double>& best = state_.plateau.best;
    const bool better = !best || IsBetter(metric_, value, *best);
    if (better) best = value;
    CountEvaluation(state_.plateau, better, options_.schedule.decay_patience);
  }
  if (!state_.best_held_out ||
      IsBetter(metric_, value, *state_.best_held_out)) {
    state_.best_held_out = state_.last_held_out;
    state_.best_step = figures.step;
    SaveBest();
  }
}

void Run::ShareHeldOut(StepFigures& figures) {
  if (ranks_.size() == 1) return;
  std::optional<double>* const all[] = {&figures.val_loss,
                                        &figures.val_bits_per_byte,
                                        &figures.val_bits_per_dim,
                                        &figures.val_accuracy,
                                        &figures.val_token_error_rate,
                                        &figures.test_loss,
                                        &figures.test_token_error_rate};
  std::vector<double> values;  // whether it is there, and what it is
  for (const std::optional<double>* one : all) {
    values.push_back(one->has_value() ? 1 : 0);
    values.push_back(one->value_or(0));
  }
  ranks_.Broadcast(values);
  for (size_t i = 0; i < std::size(all); ++i) {
    if (values[2 * i] != 0) *all[i] = values[2 * i + 1];
  }
}

bool Run::Stopping(const std::atomic<bool>& stop) {
  if (ranks_.size() == 1) return stop;
  double asked[] = {stop ? 1.0 : 0.0};
  ranks_.Sum(asked);
  return asked[0] > 0;
}

void Run::WriteDescription(const std::string& dir) {
  WriteModelFiles(dir, options_.model, plan_.data->TokenizerJson(),
                  plan_.data->LabelsJson());
}

void Run::SaveBest() {
  if (!ranks_.is_first()) return;
  ReplaceFolder(plan_.folder.best(), std::to_string(state_.step),
                [&](const std::string& dir) {
                  WriteDescription(dir);
                  nn::SaveWeights(*model_, dir + "/model.safetensors");
                });
}

// The model is written first: a checkpoint of the last step implies that the
// finished model is next to it.
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
  state_.ranks = ranks_.size();
  if (!ranks_.is_first()) {
    optimizer_->Save("");  // its part of the state, if sharded
    saved_step_ = state_.step;
    return;
  }
  state_.log_bytes = log_->bytes();
  log_->Sync();
  nn::SaveWeights(*model_, plan_.folder.model());
  ReplaceFolder(plan_.folder.checkpoint(), std::to_string(state_.step),
                [&](const std::string& dir) {
                  nn::SaveWeights(*model_, dir + "/model.safetensors");
                  optimizer_->Save(dir + "/optimizer.safetensors");
                  WriteFileAtomically(dir + "/train.json",
                                      TrainStateToJson(state_));
                });
  saved_step_ = state_.step;
}

TrainResult Run::Go(const std::atomic<bool>& stop) {
  Describe(reporter_);
  const int64_t steps = options_.schedule.steps;
  if (!plan_.from_checkpoint) SaveCheckpoint();
  bool stopping = Stopping(stop);
  bool told = false;  // what an update exchanges
  // One rank alone may stop at any time; several only where all know it.
  const auto alone_stops = [&] { return ranks_.size() == 1 && stop; };
  // All ranks hold the same figures of held-out data, so all end at one step.
  bool enough = IsOutOfPatience(state_.plateau, options_.patience);
  while (state_.step < steps && !enough && !stopping && !alone_stops()) {
    StepFigures figures = Step(state_.step + 1);
    bool last = state_.step == steps;
    if (last || state_.step % options_.eval_every == 0)
      EvaluateHeldOut(figures);
    enough = IsOutOfPatience(state_.plateau, options_.patience);
    last = last || enough;
    figures.elapsed_s = Elapsed();
    figures.cpu_s = CpuSeconds();
    if (log_ != nullptr) log_->Write(figures);
    if (figures.sequence_bytes && !told) {
      reporter_.Note(StrCat("an update exchanges ", *figures.sequence_bytes,
                            " bytes a rank along the rows"));
    }
    told = true;
    reporter_.Step(figures, steps);
    stopping = Stopping(stop);
    // The line is in the log before the checkpoint counts it.
    if (last || stopping || state_.step % options_.checkpoint_every == 0) {
      SaveCheckpoint();
    }
    if (ranks_.is_first() && options_.sample_every > 0 &&
        (last || state_.step % options_.sample_every == 0)) {
      reporter_.Sample(objective_->Sample(*model_));
    }
  }
  // A stop came after the last check, or before the first step.
  if (saved_step_ != state_.step) SaveCheckpoint();
  TrainResult result;
  result.ranks = ranks_.size();
  result.exchange_s = all_ranks_.seconds();
  result.step = state_.step;
  result.finished = state_.step == steps || enough;
  if (state_.step < steps && enough) {
    result.out_of_patience = state_.plateau.since_best;
  }
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

// The first rank looks at the folder, and the others begin from where it says:
// a checkpoint may appear, or go, while they look.
RunPlan PlanOf(const Given& given, const DevicesHere& here, Ranks& ranks) {
  if (ranks.size() == 1) return PlanRun(given, here);
  CheckSharedInputs(given);
  double from[2] = {};  // whether there is a checkpoint, and of what step
  RunPlan plan;
  if (ranks.is_first()) {
    plan = PlanRun(given, here);
    from[0] = plan.from_checkpoint ? 1 : 0;
    from[1] = static_cast<double>(plan.state.step);
  }
  ranks.Broadcast(from);
  if (!ranks.is_first()) {
    plan = FollowRun(given, here, from[0] != 0);
    if (static_cast<double>(plan.state.step) != from[1]) {
      throw FormatError(plan.folder.checkpoint(),
                        StrCat("step ", from[1], ", which rank 0 sees"),
                        StrCat("step ", plan.state.step));
    }
  }
  // The same rows everywhere.
  double prints[2] = {static_cast<double>(plan.state.fingerprint >> 32),
                      static_cast<double>(plan.state.fingerprint & 0xffffffff)};
  const double own[2] = {prints[0], prints[1]};
  ranks.Broadcast(prints);
  if (own[0] != prints[0] || own[1] != prints[1]) {
    throw FormatError("data", "the data that rank 0 reads", "others");
  }
  return plan;
}

}  // namespace

TrainResult Train(const Given& given, const std::atomic<bool>& stop,
                  Reporter& reporter, const RunRanks& ranks) {
  DevicesHere here;
  here.cuda = at::hasCUDA() && torch::cuda::device_count() > 0;
  here.ranks = ranks.all.size();
  here.pieces = ranks.sequence == nullptr ? 1 : ranks.sequence->size();
  RunPlan plan = PlanOf(given, here, ranks.all);
  SetUpTorch(plan.state.options.threads);
  return Run(std::move(plan), ranks, reporter).Go(stop);
}

}  // namespace tarn::train
