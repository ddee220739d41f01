#include "torch_nn/state/attention_state_check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "torch_nn/models/language_model.h"
#include "torch_nn/models/seq2seq.h"

namespace tarn::nn {
namespace {

// No sequence is as long; sums of such lengths fit.
constexpr int64_t kMaxLength = int64_t{1} << 40;

std::string TypeText(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  return StrCat(c10::toString(tensor.scalar_type()), " ",
                ShapeText(tensor.sizes().vec()));
}

void CheckMember(const std::string& where, const Member& member,
                 const torch::Tensor& given, const torch::Tensor& like,
                 int64_t batch, const Fail& fail) {
  if (!like.defined() || !given.defined()) {
    if (given.defined() != like.defined()) {
      fail(where, TypeText(like), TypeText(given));
    }
    return;
  }
  std::vector<int64_t> shape = like.sizes().vec();  // of no sequences
  shape[0] = batch;
  if (member.grows && given.dim() == like.dim()) shape[1] = given.size(1);
  if (given.scalar_type() != like.scalar_type() || given.sizes() != shape) {
    fail(where,
         StrCat(c10::toString(like.scalar_type()), " ", ShapeText(shape)),
         TypeText(given));
  }
}

// The range of lengths [B] int64 on the CPU; {0, 0} of no sequences.
std::pair<int64_t, int64_t> RangeOf(const torch::Tensor& lengths) {
  if (lengths.numel() == 0) return {0, 0};
  const auto [least, largest] = torch::aminmax(lengths);
  return {least.item<int64_t>(), largest.item<int64_t>()};
}

// Tensors are checked already; lengths must say what those hold.
void CheckLayerLengths(const std::string& where, const AttentionState& part,
                       const ModelConfig& config, const Fail& fail) {
  int64_t most = kMaxLength;
  if (part.keys.defined()) {
    const int64_t kept = part.keys.size(1);
    if (part.kind != AttentionKind::kLocal) {
      most = kept;
    } else if (const int64_t window = config.local_context / 2 + 1;
               kept < window) {
      most = kept;  // nothing has left the window yet
    } else if (kept > window) {
      fail(StrCat(where, ".keys"), StrCat("at most ", window, " tokens"),
           StrCat(kept));
    }
  }
  if (part.kind == AttentionKind::kAftFull) {
    most = std::min(most, config.max_sequence_length);
  }
  const auto [least, largest] = RangeOf(part.lengths);
  if (least < 0 || largest > most) {
    fail(StrCat(where, ".lengths"), StrCat("lengths in [0, ", most, "]"),
         StrCat(least, " to ", largest));
  }
}

void CheckMemoryLengths(const std::string& where, const AttentionState& part,
                        const Fail& fail) {
  const auto [least, largest] = RangeOf(part.lengths);
  const int64_t most = part.keys.defined() ? part.keys.size(1) : kMaxLength;
  if (least < 0 || largest > most) {
    fail(StrCat(where, ".lengths"), StrCat("lengths in [0, ", most, "]"),
         StrCat(least, " to ", largest));
  }
  if (!part.keys.defined()) return;
  const torch::Tensor counted =
      part.key_mask.defined()
          ? part.key_mask.sum(1).to(torch::kCPU)
          : torch::full_like(part.lengths, part.keys.size(1));
  if (!torch::equal(counted, part.lengths)) {
    fail(StrCat(where, ".lengths"), "the number of keys that count",
         "another number");
  }
}

// One layer or memory against the same of an initial state.
void CheckPart(const std::string& where, const AttentionState& part,
               AttentionState like, const ModelConfig& config, int64_t batch,
               bool memory, const Fail& fail) {
  if (part.kind != like.kind) {
    fail(StrCat(where, ".kind"), Name(like.kind), Name(part.kind));
  }
  if (!part.lengths.defined() || part.lengths.dim() != 1 ||
      part.lengths.scalar_type() != torch::kInt64 || !part.lengths.is_cpu() ||
      part.batch() != batch) {
    fail(StrCat(where, ".lengths"), StrCat("Long [", batch, "] on the CPU"),
         TypeText(part.lengths));
  }
  if (memory && like.keys.defined() && part.key_mask.defined()) {
    // A mask may be there or not; where it is, it has a place for every key.
    like.key_mask = torch::empty({0, 0}, torch::kBool);
  }
  int64_t tokens = -1;
  for (const Member& member : kMembers) {
    const std::string name = StrCat(where, ".", member.name);
    const torch::Tensor& tensor = part.*member.tensor;
    CheckMember(name, member, tensor, like.*member.tensor, batch, fail);
    if (!member.grows || !tensor.defined()) continue;
    if (tokens >= 0 && tensor.size(1) != tokens) {
      fail(name, StrCat(tokens, " tokens, as keys has"), TypeText(tensor));
    }
    tokens = tensor.size(1);
  }
  if (memory) return CheckMemoryLengths(where, part, fail);
  CheckLayerLengths(where, part, config, fail);
}

}  // namespace

StackState InitialState(const ModelImpl& model) {
  const torch::NoGradGuard no_grad;
  if (const auto* m = dynamic_cast<const LanguageModelImpl*>(&model)) {
    return m->InitialState(0);
  }
  if (const auto* m = dynamic_cast<const Seq2SeqImpl*>(&model)) {
    return m->InitialState(0);
  }
  throw ArgumentError("state file: model",
                      "a language model or a sequence-to-sequence model",
                      StrCat("arch '", Name(model.config().arch), "'"));
}

void CheckState(const ModelImpl& model, const StackState& state,
                const std::string& prefix, const Fail& fail) {
  const int64_t batch = state.layers.empty() || !state.lengths().defined()
                            ? 0
                            : state.lengths().numel();
  const StackState like = InitialState(model);
  const auto check = [&](const char* list, const auto& parts, const auto& likes,
                         bool memory) {
    if (parts.size() != likes.size()) {
      fail(prefix + list, StrCat(likes.size()), StrCat(parts.size()));
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      CheckPart(StrCat(prefix, list, ".", i), parts[i], likes[i],
                model.config(), batch, memory, fail);
      if (!memory && !torch::equal(parts[i].lengths, parts[0].lengths)) {
        fail(StrCat(prefix, list, ".", i, ".lengths"), "those of layer 0",
             "others");
      }
    }
  };
  check("layers", state.layers, like.layers, /*memory=*/false);
  check("memories", state.memories, like.memories, /*memory=*/true);
}

}  // namespace tarn::nn
