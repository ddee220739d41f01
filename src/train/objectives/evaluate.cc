#include "train/objectives/evaluate.h"

#include <algorithm>
#include <numbers>

#include "runtime/sampling/sampler.h"
#include "train/objectives/objective.h"

namespace tarn::train {
namespace {

// Wide enough to keep the cores busy, small compared with a training step's
// memory: so many windows, and of long ones no more than have so many tokens.
constexpr int64_t kWindowsAtOnce = 16, kTokensAtOnce = 65'536;
constexpr int64_t kPromptTokens = 16;

}  // namespace

double HeldOutLoss::nats_per_token() const {
  return nats / static_cast<double>(tokens);
}

double HeldOutLoss::bits_per_byte() const {
  return nats / (static_cast<double>(bytes) * std::numbers::ln2);
}

torch::Tensor LogitsOf(nn::ModelImpl& model, const nn::Batch& batch) {
  const torch::Tensor logits =
      model.Logits(nn::ToDevice(batch, model.device()));
  const bool narrow = at::isReducedFloatingType(logits.scalar_type());
  return narrow ? logits.to(torch::kFloat32) : logits;
}

torch::Tensor LogitsOf(nn::ModelImpl& model, const torch::Tensor& inputs) {
  nn::Batch batch;
  batch.tokens = inputs;
  return LogitsOf(model, batch);
}

torch::Tensor LogitsOf(nn::ModelImpl& model, const torch::Tensor& inputs,
                       const nn::SequenceCut& cut) {
  nn::Batch batch;
  batch.tokens = inputs;
  if (cut.ranks != nullptr) batch.cut = &cut;
  return LogitsOf(model, batch);
}

Rows MakeRows(const std::vector<Window>& windows, int64_t seq_len) {
  const int64_t count = static_cast<int64_t>(windows.size());
  Rows rows;
  rows.inputs = torch::zeros({count, seq_len}, torch::kInt64);
  rows.targets = torch::full({count, seq_len}, kIgnored, torch::kInt64);
  for (int64_t r = 0; r < count; ++r) {
    const std::vector<int32_t>& tokens = windows[r].tokens;
    int64_t* input = rows.inputs.data_ptr<int64_t>() + r * seq_len;
    int64_t* target = rows.targets.data_ptr<int64_t>() + r * seq_len;
    std::copy(tokens.begin(), tokens.end() - 1, input);
    std::copy(tokens.begin() + 1, tokens.end(), target);
    rows.target_bytes += windows[r].target_bytes;
  }
  return rows;
}

void TakePiece(const nn::SequenceCut& cut, Rows& rows) {
  rows.inputs = cut.Piece(rows.inputs);
  rows.targets = cut.Piece(rows.targets).contiguous();
}

HeldOutLoss Evaluate(nn::ModelImpl& model, const Corpus& corpus,
                     int64_t seq_len, const RankedSequence* sequence) {
  const EvalMode eval(model);
  const auto options = torch::nn::functional::CrossEntropyFuncOptions()
                           .ignore_index(kIgnored)
                           .reduction(torch::kSum);
  const nn::SequenceCut cut = {sequence, seq_len};
  HeldOutLoss loss;
  const int64_t windows = corpus.held_out_windows();
  const int64_t at_once = std::clamp<int64_t>(
      kTokensAtOnce / std::max<int64_t>(seq_len, 1), 1, kWindowsAtOnce);
  for (int64_t first = 0; first < windows; first += at_once) {
    std::vector<Window> batch;
    for (int64_t i = first; i < std::min(first + at_once, windows); ++i) {
      batch.push_back(corpus.HeldOutWindow(i));
      loss.tokens += static_cast<int64_t>(batch.back().tokens.size()) - 1;
    }
    // A row that ended early is padded: in a causal model later tokens do not
    // affect a token, and their targets are ignored.
    Rows rows = MakeRows(batch, seq_len);
    if (sequence != nullptr) TakePiece(cut, rows);
    const torch::Tensor logits = LogitsOf(model, rows.inputs, cut);
    loss.nats += torch::nn::functional::cross_entropy(
                     logits.flatten(0, 1),
                     rows.targets.flatten().to(logits.device()), options)
                     .item<double>();
    loss.bytes += rows.target_bytes;
  }
  if (sequence != nullptr) sequence->Sum({&loss.nats, 1});
  return loss;
}

std::string SampleText(nn::ModelImpl& model, const Corpus& corpus,
                       int64_t seq_len, int64_t tokens, uint64_t seed) {
  const EvalMode eval(model);
  std::vector<int32_t> text = corpus.HeldOutWindow(0).tokens;
  text.resize(std::min<size_t>(text.size(), kPromptTokens));
  SamplerOptions options;
  options.seed = seed;
  for (int64_t i = 0; i < tokens; ++i) {
    // The training module has no recurrent form: it reads the window again for
    // every token, which is fine for a line of text now and then.
    const int64_t seen =
        std::min<int64_t>(static_cast<int64_t>(text.size()), seq_len);
    const torch::Tensor input = torch::empty({1, seen}, torch::kInt64);
    std::copy(text.end() - seen, text.end(), input.data_ptr<int64_t>());
    const torch::Tensor logits =
        LogitsOf(model, input).select(1, seen - 1).to(torch::kCPU).contiguous();
    text.push_back(
        Sample({logits.data_ptr<float>(), static_cast<size_t>(logits.numel())},
               options, text.size()));
  }
  return corpus.tokenizer().Decode(text);
}

}  // namespace tarn::train
