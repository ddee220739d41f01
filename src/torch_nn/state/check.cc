#include "torch_nn/state/check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tarn::nn {
namespace {

std::string TypeText(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  return StrCat(c10::toString(tensor.scalar_type()), " ",
                ShapeText(tensor.sizes().vec()));
}

// Checks one tensor against that of an initial state without sequences.
void CheckTensor(const std::string& where, const StateSlot& slot,
                 const torch::Tensor& given, torch::Tensor like, int64_t batch,
                 const Fail& fail) {
  if (slot.mask) {  // may be absent
    if (!given.defined()) return;
    like = torch::empty({0, 0}, torch::kBool);
  }
  if (!given.defined()) return fail(where, TypeText(like), "none");
  std::vector<int64_t> shape = like.sizes().vec();
  shape[0] = batch;
  const bool counts_tokens = slot.spec.grows || slot.mask;
  if (counts_tokens && given.dim() == like.dim()) shape[1] = given.size(1);
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

void CheckRange(const std::string& where, const torch::Tensor& lengths,
                int64_t most, const Fail& fail) {
  const auto [least, largest] = RangeOf(lengths);
  if (least >= 0 && largest <= most) return;
  fail(where + ".lengths", StrCat("lengths in [0, ", most, "]"),
       StrCat(least, " to ", largest));
}

// Caches of a state that keep as many tokens: with parallel mixers there may be
// several windows.
struct Caches {
  const char* first;  // of their names
  int64_t window;     // tokens that they keep at most
  int64_t tokens;     // that they hold, the same in all
};

std::vector<Caches> CachesOf(const std::string& where, const MixerState& part,
                             const Fail& fail) {
  std::vector<Caches> all;
  for (size_t i = 0; i < part.tensors().size(); ++i) {
    const StateSlot& slot = part.form().slots[i];
    const torch::Tensor& tensor = part.tensors()[i];
    if (!(slot.spec.grows || slot.mask) || !tensor.defined()) continue;
    const int64_t window = slot.spec.kept > 0 ? slot.spec.kept : kMaxLength;
    const int64_t tokens = tensor.size(1);
    const auto found = std::find_if(
        all.begin(), all.end(),
        [&](const Caches& caches) { return caches.window == window; });
    if (found == all.end()) {
      if (tokens > window) {
        fail(StrCat(where, ".", slot.spec.name),
             StrCat("at most ", window, " tokens"), StrCat(tokens));
      }
      all.push_back({slot.spec.name, window, tokens});
    } else if (tokens != found->tokens) {
      fail(StrCat(where, ".", slot.spec.name),
           StrCat(found->tokens, " tokens, as ", found->first, " has"),
           TypeText(tensor));
    }
  }
  return all;
}

// Tensors are checked already; lengths must agree with what they hold.
void CheckLayerLengths(const std::string& where, const MixerState& part,
                       const std::vector<Caches>& all, const Fail& fail) {
  int64_t most = part.form().max_length;
  for (const Caches& caches : all) {
    // Until a token leaves the window, a sequence is no longer than the window.
    if (caches.tokens < caches.window) most = std::min(most, caches.tokens);
  }
  CheckRange(where, part.lengths, most, fail);
}

void CheckMemoryLengths(const std::string& where, const MixerState& part,
                        const std::vector<Caches>& all, const Fail& fail) {
  CheckRange(where, part.lengths, all.empty() ? kMaxLength : all[0].tokens,
             fail);
  if (all.empty()) return;
  torch::Tensor counted = torch::full_like(part.lengths, all[0].tokens);
  for (size_t i = 0; i < part.tensors().size(); ++i) {
    if (part.form().slots[i].mask && part.tensors()[i].defined()) {
      counted = part.tensors()[i].sum(1).to(torch::kCPU);
    }
  }
  if (!torch::equal(counted, part.lengths)) {
    fail(where + ".lengths", "the number of rows that count", "another number");
  }
}

// Checks one layer or memory against that of an initial state.
void CheckPart(const std::string& where, const MixerState& part,
               const MixerState& like, int64_t batch, bool memory,
               const Fail& fail) {
  if (part.form().kind != like.form().kind) {
    fail(where + ".kind", Name(like.form().kind), Name(part.form().kind));
  }
  if (!part.lengths.defined() || part.lengths.dim() != 1 ||
      part.lengths.scalar_type() != torch::kInt64 || !part.lengths.is_cpu() ||
      part.batch() != batch) {
    fail(where + ".lengths", StrCat("Long [", batch, "] on the CPU"),
         TypeText(part.lengths));
  }
  const std::vector<StateSlot>& slots = like.form().slots;
  for (size_t i = 0; i < slots.size(); ++i) {
    const char* name = slots[i].spec.name;
    CheckTensor(StrCat(where, ".", name), slots[i],
                part.Has(name) ? part[name] : torch::Tensor(),
                like.tensors()[i], batch, fail);
  }
  if (part.tensors().size() != slots.size()) {
    fail(where, StrCat(slots.size(), " tensors"),
         StrCat(part.tensors().size()));
  }
  const std::vector<Caches> caches = CachesOf(where, part, fail);
  if (memory) return CheckMemoryLengths(where, part, caches, fail);
  CheckLayerLengths(where, part, caches, fail);
}

}  // namespace

void CheckState(const ModelImpl& model, const StackState& state,
                const std::string& prefix, const Fail& fail) {
  const int64_t batch = state.layers.empty() || !state.lengths().defined()
                            ? 0
                            : state.lengths().numel();
  const torch::NoGradGuard no_grad;
  const StackState like = model.EmptyState();
  const auto check = [&](const char* list, const auto& parts, const auto& likes,
                         bool memory) {
    if (parts.size() != likes.size()) {
      fail(prefix + list, StrCat(likes.size()), StrCat(parts.size()));
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string where = StrCat(prefix, list, ".", i);
      CheckPart(where, parts[i], likes[i], batch, memory, fail);
      if (!memory && !torch::equal(parts[i].lengths, parts[0].lengths)) {
        fail(where + ".lengths", "those of layer 0", "others");
      }
    }
  };
  check("layers", state.layers, like.layers, /*memory=*/false);
  check("memories", state.memories, like.memories, /*memory=*/true);
}

}  // namespace tarn::nn
