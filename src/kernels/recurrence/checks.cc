#include "kernels/recurrence/checks.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "kernels/recurrence/tasks.h"
#include "kernels/sequence_checks.h"

namespace tarn {
namespace {

std::string Where(const RecurrentOp& op, const char* name) {
  return StrCat(op.name, ": ", name);
}

void WantShape(const RecurrentOp& op, const char* name, const TensorView& view,
               const int64_t (&wanted)[4]) {
  if (!std::equal(wanted, wanted + 4, view.size)) {
    throw ShapeError(Where(op, name), ShapeText({wanted, wanted + 4}),
                     ShapeText(view.Shape()));
  }
}

void WantData(const RecurrentOp& op, const char* name, const TensorView& view) {
  const bool empty = view.size[0] == 0 || view.size[1] == 0;
  if (view.data == nullptr && !empty) {
    throw ArgumentError(Where(op, name), "data", "a null pointer");
  }
}

void WantDType(const RecurrentOp& op, const char* name, const TensorView& view,
               const TensorView& queries) {
  if (view.dtype != queries.dtype) {
    throw DTypeError(Where(op, name),
                     StrCat(DTypeName(queries.dtype), " as queries"),
                     DTypeName(view.dtype));
  }
}

void CheckShapes(const RecurrentOp& op, const RecurrentInputs& in) {
  const int64_t batch = in.queries.size[0], seq_len = in.queries.size[1];
  const int64_t heads = in.queries.size[2], d_key = in.queries.size[3];
  const int64_t value_heads = in.values.size[2], d_value = in.values.size[3];
  if (batch < 0 || seq_len < 0 || heads < 1 || d_key < 1) {
    throw ShapeError(Where(op, "queries"), "[B, T, H, K] with H, K >= 1",
                     ShapeText(in.queries.Shape()));
  }
  WantShape(op, "keys", in.keys, {batch, seq_len, heads, d_key});
  if (value_heads < 1 || value_heads % heads != 0 || d_value < 1 ||
      in.values.size[0] != batch || in.values.size[1] != seq_len) {
    throw ShapeError(Where(op, "values"),
                     StrCat("[", batch, ", ", seq_len, ", a multiple of ",
                            heads, ", V >= 1] (time comes before heads)"),
                     ShapeText(in.values.Shape()));
  }
  WantDType(op, "keys", in.keys, in.queries);
  WantDType(op, "values", in.values, in.queries);
  WantData(op, "queries", in.queries);
  WantData(op, "keys", in.keys);
  WantData(op, "values", in.values);
}

void CheckGates(const RecurrentOp& op, const RecurrentInputs& in) {
  const int64_t batch = in.queries.size[0], seq_len = in.queries.size[1];
  const int64_t d_key = in.queries.size[3], value_heads = in.values.size[2];
  if (in.HasGates()) {
    if (in.head_gates != nullptr) {
      throw ArgumentError(Where(op, "head_gates"), "no head_gates with gates",
                          "both");
    }
    if (in.gates.size[3] != 1 && in.gates.size[3] != d_key) {
      throw ShapeError(Where(op, "gates"),
                       StrCat("[", batch, ", ", seq_len, ", ", value_heads,
                              ", 1 or ", d_key, "]"),
                       ShapeText(in.gates.Shape()));
    }
    WantShape(op, "gates", in.gates,
              {batch, seq_len, value_heads, in.gates.size[3]});
    WantData(op, "gates", in.gates);
  }
  if (op.delta) {
    WantShape(op, "betas", in.betas, {batch, seq_len, value_heads, 1});
    WantData(op, "betas", in.betas);
  } else if (in.betas.size[3] != 0) {
    throw ArgumentError(Where(op, "betas"), "no betas",
                        ShapeText(in.betas.Shape()));
  }
  if ((op.delta || op.pair) && in.bonus != nullptr) {
    throw ArgumentError(Where(op, "bonus"), "no bonus", "one");
  }
  for (const TensorView* view : {&in.reads, &in.writes}) {
    const char* name = view == &in.reads ? "reads" : "writes";
    if (op.pair) {
      WantShape(op, name, *view, {batch, seq_len, in.queries.size[2], d_key});
      WantDType(op, name, *view, in.queries);
      WantData(op, name, *view);
    } else if (view->size[3] != 0) {
      throw ArgumentError(Where(op, name), StrCat("no ", name),
                          ShapeText(view->Shape()));
    }
  }
  if (op.pair && value_heads != in.queries.size[2]) {
    throw ShapeError(Where(op, "values"),
                     StrCat(in.queries.size[2], " heads as queries"),
                     ShapeText(in.values.Shape()));
  }
}

}  // namespace

int64_t RecurrentCheckpoints(const RecurrentInputs& in) {
  return in.queries.size[0] * (in.queries.size[1] / kRecurrentGroup);
}

void CheckRecurrent(const RecurrentOp& op, const RecurrentOptions& options,
                    const RecurrentInputs& in, const TensorView& out,
                    const char* name) {
  if (options.scale * 0.0f != 0.0f) {
    throw ArgumentError(Where(op, "scale"), "a finite number",
                        StrCat(options.scale));
  }
  CheckShapes(op, in);
  CheckGates(op, in);
  CheckSequences(op.name, "queries", in.queries, in.lengths, in.cu_seqlens,
                 in.sequences, !in.on_device);
  WantShape(op, name, out,
            {in.queries.size[0], in.queries.size[1], in.values.size[2],
             in.values.size[3]});
  WantDType(op, name, out, in.queries);
  WantData(op, name, out);
}

void CheckRecurrentGradients(const RecurrentOp& op, const RecurrentInputs& in,
                             const RecurrentGradients& grad) {
  const auto same = [&](const char* name, const TensorView& given,
                        const TensorView& wanted, bool same_type) {
    if (!std::equal(given.size, given.size + 4, wanted.size) ||
        (same_type && given.dtype != wanted.dtype)) {
      throw ShapeError(
          StrCat(op.name, " gradient: ", name),
          StrCat(ShapeText(wanted.Shape()), " ", DTypeName(wanted.dtype)),
          StrCat(ShapeText(given.Shape()), " ", DTypeName(given.dtype)));
    }
    WantData(op, name, given);
  };
  same("grad_queries", grad.grad_queries, in.queries, true);
  same("grad_keys", grad.grad_keys, in.keys, true);
  same("grad_values", grad.grad_values, in.values, true);
  // Sums of gates and betas are float32 whatever their dtype.
  if (in.HasGates()) same("grad_gates", grad.grad_gates, in.gates, false);
  if (op.delta) same("grad_betas", grad.grad_betas, in.betas, false);
  if (op.pair) {
    same("grad_reads", grad.grad_reads, in.reads, true);
    same("grad_writes", grad.grad_writes, in.writes, true);
  }
}

void CheckRecurrentStep(const RecurrentOp& op, const RecurrentInputs& in,
                        const RecurrentState& state) {
  if (in.cu_seqlens != nullptr || in.initial_state != nullptr) {
    throw ArgumentError(
        StrCat(op.name, " step: ",
               in.cu_seqlens != nullptr ? "cu_seqlens" : "initial_state"),
        "none: a step works on states", "one");
  }
  if (in.queries.size[0] > 0 &&
      (state.state == nullptr || state.next == nullptr)) {
    throw ArgumentError(StrCat(op.name, " step: state"),
                        "a state before and after", "a null pointer");
  }
}

}  // namespace tarn
