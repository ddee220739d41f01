// One token of each sequence through a whole language model: its embedding and
// position, the layers, the norm and the map to logits; and tokens after it,
// each chosen by the logits of the one before. A step's arithmetic is small
// compared with the cost of more operators and of calls from Python.
#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/max.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/positions/positions.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/recurrent/layer_arguments.h"

namespace tarn::ops::language_step {
namespace {

using layer_step::After;
using layer_step::Kind;
using layer_step::TensorList;

constexpr char kOp[] = "language_step";

// Where the rows of tokens come from.
struct Tokens {
  at::Tensor tokens;         // [B] int64
  OptionalTensor places;     // [B] or [1] int64; none: zeros
  at::Tensor embedding;      // [vocabulary, D]
  OptionalTensor positions;  // [places, D]
  bool sinusoidal = false;
};

void WantLong(const char* name, const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kLong) return;
  throw DTypeError(StrCat(kOp, ": ", name), "Long",
                   c10::toString(tensor.scalar_type()));
}

void Check(const Tokens& in, const After& after) {
  WantLong("tokens", in.tokens);
  if (in.tokens.dim() != 1) {
    throw ShapeError(StrCat(kOp, ": tokens"), "[B]",
                     StrCat(in.tokens.dim(), " axes"));
  }
  if (in.embedding.dim() != 2) {
    throw ShapeError(StrCat(kOp, ": embedding"), "[vocabulary, D]",
                     StrCat(in.embedding.dim(), " axes"));
  }
  const c10::SymInt width = in.embedding.sym_size(1);
  if (in.places.has_value()) {
    WantLong("places", *in.places);
    if (in.places->dim() != 1 ||
        (in.places->sym_size(0) != 1 &&
         in.places->sym_size(0) != in.tokens.sym_size(0))) {
      throw ShapeError(StrCat(kOp, ": places"), "[B] or [1]",
                       StrCat(in.places->sym_sizes()));
    }
  }
  if (in.positions.has_value()) {
    if (in.sinusoidal) {
      throw ArgumentError(StrCat(kOp, ": positions"),
                          "none where they are sinusoidal", "a tensor");
    }
    const bool table = in.positions->dim() == 2;
    const c10::SymInt rows = table ? in.positions->sym_size(0) : 1;
    WantLike(kOp, "positions", *in.positions, in.embedding, {rows, width});
    if (rows < 1) {
      throw ShapeError(StrCat(kOp, ": positions"), "at least one row", "none");
    }
  }
  const at::Tensor& head = *after.head;
  const c10::SymInt outputs = head.dim() == 2 ? head.sym_size(0) : 0;
  WantLike(kOp, "head", head, in.embedding, {outputs, width});
  if (outputs < 1) {
    throw ShapeError(StrCat(kOp, ": head"), "at least one row", "none");
  }
  if (after.head_bias.has_value()) {
    WantLike(kOp, "head_bias", *after.head_bias, in.embedding, {outputs});
  }
}

// Returns a place or a token, which must be one of `count`.
int64_t Want(const char* name, int64_t value, int64_t count) {
  if (value >= 0 && value < count) return value;
  throw ArgumentError(StrCat(kOp, ": ", name), StrCat("0 to ", count - 1),
                      StrCat(value));
}

// Embeds tokens that hold data; what it reads is float32 on the CPU.
at::Tensor Read(const Tokens& in) {
  const int64_t batch = in.tokens.size(0), width = in.embedding.size(1);
  const at::Tensor tokens = in.tokens.contiguous();
  const at::Tensor rows = in.embedding.contiguous();
  at::Tensor x = EmptyDense({batch, width});
  float* to = x.mutable_data_ptr<float>();
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t token =
        Want("tokens", tokens.const_data_ptr<int64_t>()[i], rows.size(0));
    std::copy_n(rows.const_data_ptr<float>() + token * width, width,
                to + i * width);
  }
  if (!in.sinusoidal && !in.positions.has_value()) return x;
  at::Tensor places, table;
  if (in.places.has_value()) places = in.places->contiguous();
  if (in.positions.has_value()) table = in.positions->contiguous();
  const bool shared = !places.defined() || places.size(0) == 1;
  at::Tensor made = EmptyDense({width});
  for (int64_t i = 0; i < batch; ++i) {
    const float* row = made.const_data_ptr<float>();
    const int64_t place =
        !places.defined() ? 0
                          : places.const_data_ptr<int64_t>()[shared ? 0 : i];
    Want("places", place, INT64_MAX);
    if (table.defined()) {
      row = table.const_data_ptr<float>() +
            Want("places", place, table.size(0)) * width;
    } else if (i == 0 || !shared) {
      SinusoidalRow(place, width, made.mutable_data_ptr<float>());
    }
    for (int64_t j = 0; j < width; ++j) to[i * width + j] += row[j];
  }
  return x;
}

at::Tensor ComposedRead(const Tokens& in) {
  const at::Tensor x = at::embedding(in.embedding, in.tokens);
  if (!in.sinusoidal && !in.positions.has_value()) return x;
  const at::Tensor places = in.places.has_value()
                                ? in.places->to(in.tokens.device())
                                : in.tokens.new_zeros({1});
  if (in.sinusoidal) {
    static const auto rows = FindOp<at::Tensor(const at::Tensor&, c10::SymInt)>(
        "tarn::sinusoidal_rows");
    return x + rows.call(places, in.embedding.sym_size(1)).to(x);
  }
  return x + at::embedding(*in.positions, places);
}

bool ReadServes(const Tokens& in) {
  return KernelServes(in.embedding, in.positions) && HoldsData(in.embedding) &&
         HoldsData(in.tokens) &&
         (!in.places.has_value() || HoldsData(*in.places)) &&
         !WantsGradient(in.embedding, in.positions);
}

// A run of tokens: how many are read, and what is added to the logits of all
// but the last, the largest of which gives the next token.
struct Following {
  int64_t count = 1;
  OptionalTensor noise;  // [count - 1, B, outputs]; none: nothing
};

// Every token of the run needs a row of the table. On other devices the check
// would wait for the device, and torch's embedding asserts.
void CheckPlaces(const Following& following, const Tokens& in) {
  if (!in.positions.has_value() || !HoldsData(*in.positions)) return;
  int64_t most = 0;
  if (in.places.has_value()) {
    if (!in.places->is_cpu() || !HoldsData(*in.places)) return;
    const at::Tensor places = in.places->contiguous();
    const int64_t* from = places.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < places.numel(); ++i) {
      most = std::max(most, from[i]);
    }
  }
  const int64_t last = in.positions->size(0) - following.count;
  if (most <= last) return;
  throw ArgumentError(StrCat(kOp, ": places"),
                      StrCat("at most ", last, ", for ", following.count,
                             " of ", in.positions->size(0), " positions"),
                      StrCat(most));
}

void Check(const Following& following, const Tokens& in, const After& after) {
  if (following.count < 1) {
    throw ArgumentError(StrCat(kOp, ": count"), "at least 1",
                        StrCat(following.count));
  }
  CheckPlaces(following, in);
  if (!following.noise.has_value()) return;
  WantLike(
      kOp, "noise", *following.noise, in.embedding,
      {following.count - 1, in.tokens.sym_size(0), after.head->sym_size(0)});
}

// logits [B, outputs], states, the place after the last token, and, for more
// than one token, the chosen ones [count - 1, B] and the logits, with noise, by
// which they were chosen.
using Results =
    std::tuple<at::Tensor, std::vector<at::Tensor>, std::vector<at::Tensor>,
               at::Tensor, std::vector<at::Tensor>>;

// Places [B], or [1] for all, one token later.
at::Tensor Later(const OptionalTensor& places, const at::Tensor& tokens) {
  if (!places.has_value()) return tokens.new_ones({1});
  if (!HoldsData(*places)) return *places + 1;
  const at::Tensor dense = places->contiguous();
  at::Tensor later = EmptyDense(dense.sizes(), at::kLong);
  const int64_t* from = dense.const_data_ptr<int64_t>();
  std::transform(from, from + dense.numel(), later.mutable_data_ptr<int64_t>(),
                 [](int64_t place) { return place + 1; });
  return later;
}

Results Run(Tokens in, const Following& following, const After& after,
            const Kind& kind, std::vector<layer_step::Call> layers) {
  std::vector<at::Tensor> chosen, best;
  for (int64_t i = 0;; ++i) {
    const at::Tensor x = ReadServes(in) ? Read(in) : ComposedRead(in);
    for (layer_step::Call& layer : layers) layer.x = x;
    layer_step::LayersResults results =
        layer_step::Steps(layers, x, kind, after);
    if (i + 1 == following.count) {
      std::vector<at::Tensor> more;
      if (i > 0) more = {at::stack(chosen), at::stack(best)};
      return {std::move(results.out), std::move(results.S),
              std::move(results.z), Later(in.places, in.tokens),
              std::move(more)};
    }
    if (following.noise.has_value()) results.out.add_((*following.noise)[i]);
    auto [most, token] = at::max(results.out, 1);
    best.push_back(most);
    chosen.push_back(token);
    in.places = Later(in.places, in.tokens);
    in.tokens = token;
    for (size_t k = 0; k < layers.size(); ++k) {
      layers[k].S = std::move(results.S[k]);
      layers[k].z = std::move(results.z[k]);
    }
  }
}

Results Flat(const at::Tensor& tokens, const OptionalTensor& places,
             const at::Tensor& embedding, const OptionalTensor& positions,
             bool sinusoidal, const at::Tensor& head,
             const OptionalTensor& head_bias, at::TensorList S,
             at::TensorList z, const TensorList& weights,
             const OptionalTensor& gamma, const OptionalTensor& beta,
             int64_t n_heads, c10::string_view attention,
             c10::string_view feature_map, c10::string_view denominator,
             double eps, std::optional<double> softmax_temp,
             c10::string_view activation, c10::string_view norm_kind,
             double norm_eps, bool pre_norm, int64_t count,
             const OptionalTensor& noise) {
  Kind kind =
      layer_step::MakeKind(n_heads, activation, norm_kind, norm_eps, pre_norm);
  kind.attention.feature_map = std::string(feature_map);
  kind.attention.denominator = std::string(denominator);
  kind.attention.eps = eps;
  kind.softmax_temp = softmax_temp;
  const Tokens in = {tokens, places, embedding, positions, sinusoidal};
  const After after = {gamma, beta, head, head_bias};
  const Following following = {count, noise};
  return WithTorchErrors([&] {
    kind.mixer = layer_step::ParseMixer("attention", attention);
    Check(in, after);
    Check(following, in, after);
    layer_step::CheckLastNorm(embedding, after);
    return Run(in, following, after, kind,
               layer_step::MakeLayers(embedding, S, z, weights, kind));
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "language_step(Tensor tokens, Tensor? places, Tensor embedding, "
      "Tensor? positions, bool sinusoidal, Tensor head, Tensor? head_bias, "
      "Tensor[] S, Tensor[] z, Tensor?[] weights, Tensor? gamma, Tensor? beta, "
      "int n_heads, str attention='linear', str feature_map='elu1', "
      "str denominator='exact', float eps=1e-6, float? softmax_temp=None, "
      "str activation='relu', str norm_kind='layer', float norm_eps=1e-5, "
      "bool pre_norm=False, int count=1, Tensor? noise=None) -> "
      "(Tensor logits, Tensor[] S, Tensor[] z, Tensor later, "
      "Tensor[] chosen)",
      &Flat);
}

}  // namespace
}  // namespace tarn::ops::language_step
