#include "torch_ops/common/call.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

#include "config/model_config.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/wants.h"

namespace tarn::ops {
namespace {

constexpr char kLinearOp[] = "linear_attention: ";

// The enumerator of that name; the error lists all names. elsewhere: what takes
// other names.
template <typename Enum>
Enum Parse(const char* argument, const std::string& name,
           const std::vector<Enum>& all, const char* elsewhere = "") {
  std::string wanted;
  for (const Enum value : all) {
    if (name == Name(value)) return value;
    wanted += StrCat(wanted.empty() ? "" : ", ", Name(value));
  }
  throw ArgumentError(StrCat(kLinearOp, argument),
                      StrCat("one of ", wanted, elsewhere), name);
}

void WantTensor(const char* name, const at::Tensor& tensor,
                const std::vector<int64_t>& shape) {
  if (tensor.sizes() != shape) {
    throw ShapeError(StrCat(kLinearOp, name), ShapeText(shape),
                     ShapeText(tensor.sizes().vec()));
  }
}

void WantDType(const char* name, const at::Tensor& tensor,
               std::initializer_list<at::ScalarType> allowed) {
  std::string wanted;
  for (const at::ScalarType type : allowed) {
    if (tensor.scalar_type() == type) return;
    wanted += StrCat(wanted.empty() ? "" : " or ", type);
  }
  throw DTypeError(StrCat(kLinearOp, name), wanted,
                   StrCat(tensor.scalar_type()));
}

// Dense 64-bit lengths; `tensor` is replaced by the copy where one is needed.
const int64_t* Lengths(const char* name, OptionalTensor& tensor,
                       int64_t least) {
  WantDType(name, *tensor, {at::kInt, at::kLong});
  if (tensor->dim() != 1 || tensor->size(0) < least) {
    throw ShapeError(StrCat(kLinearOp, name), StrCat("[n] with n >= ", least),
                     ShapeText(tensor->sizes().vec()));
  }
  tensor = tensor->to(at::kLong).contiguous();
  return tensor->const_data_ptr<int64_t>();
}

// A part of the state, dense; float32, in a float64 call float64.
const float* State(const char* name, OptionalTensor& tensor,
                   const std::vector<int64_t>& shape, bool is_double) {
  WantDType(name, *tensor, {is_double ? at::kDouble : at::kFloat});
  WantTensor(name, *tensor, shape);
  tensor = tensor->contiguous();
  return static_cast<const float*>(tensor->const_data_ptr());
}

// What kernels on a device read has to be there.
void WantDevice(const Operands& in) {
  const Wants want("linear_attention", in.queries);
  want.Device("keys", in.keys);
  want.Device("values", in.values);
  for (const auto& [name, x] : {std::pair{"key_mask", &in.key_mask},
                                std::pair{"key_lengths", &in.key_lengths},
                                std::pair{"cu_seqlens", &in.cu_seqlens},
                                std::pair{"initial_S", &in.initial_S},
                                std::pair{"initial_z", &in.initial_z}}) {
    if (x->has_value()) want.Device(name, **x);
  }
}

void AddLengths(KernelCall& call) {
  const int64_t batch = call.inputs.queries.size[0];
  if (call.held.key_mask.has_value()) {
    at::Tensor& mask = *call.held.key_mask;
    WantDType("key_mask", mask, {at::kBool});
    WantTensor("key_mask", mask, {batch, call.inputs.keys.size[1]});
    mask = mask.contiguous();
    call.inputs.key_mask = static_cast<const uint8_t*>(mask.const_data_ptr());
  }
  if (call.held.key_lengths.has_value()) {
    call.inputs.key_lengths = Lengths("key_lengths", call.held.key_lengths, 0);
    WantTensor("key_lengths", *call.held.key_lengths, {batch});
  }
  if (call.held.cu_seqlens.has_value()) {
    call.inputs.cu_seqlens = Lengths("cu_seqlens", call.held.cu_seqlens, 1);
    call.inputs.sequences = call.held.cu_seqlens->size(0) - 1;
  }
}

void AddState(KernelCall& call) {
  const LinearAttentionInputs& in = call.inputs;
  const bool is_double = call.held.queries.scalar_type() == at::kDouble;
  const std::vector<int64_t> shape = {call.states(), in.values.size[2],
                                      in.keys.size[3], in.values.size[3]};
  if (call.held.initial_S.has_value()) {
    call.inputs.initial_S =
        State("initial_S", call.held.initial_S, shape, is_double);
  }
  if (call.held.initial_z.has_value()) {
    call.inputs.initial_z = State("initial_z", call.held.initial_z,
                                  {shape[0], shape[1], shape[2]}, is_double);
  }
  if (call.held.initial_S.has_value() != call.held.initial_z.has_value()) {
    throw ArgumentError(
        StrCat(kLinearOp, "initial state"), "both S and z, or none",
        call.held.initial_S.has_value() ? "S alone" : "z alone");
  }
}

// One handle a process, found at the first call.
template <typename Signature>
const c10::TypedOperatorHandle<Signature> Handle(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<Signature>();
}

}  // namespace

LinearAttentionOptions KernelOptions(const Settings& settings) {
  LinearAttentionOptions options;
  options.causal = settings.causal;
  options.causal_offset = settings.causal_offset.guard_int(__FILE__, __LINE__);
  std::vector<FeatureMap> maps;  // the kernels'
  for (const FeatureMapTraits& row : kFeatureMaps) {
    if (row.elementwise) maps.push_back(row.map);
  }
  options.feature_map = Parse("feature_map", settings.feature_map, maps,
                              " (mapped_linear_attention takes the others)");
  options.denominator =
      Parse("denominator", settings.denominator,
            std::vector{Denominator::kExact, Denominator::kCompat,
                        Denominator::kNone});
  options.eps = static_cast<float>(settings.eps);
  options.scale = static_cast<float>(settings.scale);
  options.chunk_size = settings.chunk_size;
  return options;
}

TensorView ViewOf(const char* name, at::Tensor& tensor) {
  WantDType(name, tensor, {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble});
  if (tensor.dim() != 4) {
    throw ShapeError(StrCat(kLinearOp, name),
                     "4 axes [batch, seq_len, heads, width]",
                     ShapeText(tensor.sizes().vec()));
  }
  if (tensor.size(3) > 1 && tensor.stride(3) != 1) {
    tensor = tensor.contiguous();
  }
  TensorView view;
  view.data = const_cast<void*>(tensor.const_data_ptr());
  for (int axis = 0; axis < 4; ++axis) view.size[axis] = tensor.size(axis);
  for (int axis = 0; axis < 3; ++axis) view.stride[axis] = tensor.stride(axis);
  view.dtype = tensor.scalar_type() == at::kBFloat16 ? DType::kBF16
               : tensor.scalar_type() == at::kHalf   ? DType::kF16
                                                     : DType::kF32;
  return view;
}

KernelCall MakeKernelCall(const Operands& in, const Settings& settings) {
  KernelCall call;
  call.held = in;
  call.options = KernelOptions(settings);
  call.inputs.on_device = in.queries.is_cuda();
  if (call.inputs.on_device) WantDevice(in);
  call.inputs.queries = ViewOf("queries", call.held.queries);
  call.inputs.keys = ViewOf("keys", call.held.keys);
  call.inputs.values = ViewOf("values", call.held.values);
  WantDType("keys", in.keys, {in.queries.scalar_type()});
  WantDType("values", in.values, {in.queries.scalar_type()});
  AddLengths(call);
  AddState(call);
  // Only the shape of the output is used here.
  LinearAttentionOutputs outputs;
  outputs.out = call.inputs.queries;
  outputs.out.size[2] = call.inputs.values.size[2];
  outputs.out.size[3] = call.inputs.values.size[3];
  CheckLinearAttention(call.options, call.inputs, outputs);
  return call;
}

Workspace::Workspace(size_t bytes)
    : bytes_(EmptyDense({static_cast<int64_t>(bytes) + 63}, at::kByte)) {}

void* Workspace::data() const {
  const uintptr_t at = reinterpret_cast<uintptr_t>(bytes_.data_ptr());
  return reinterpret_cast<void*>((at + 63) / 64 * 64);
}

Results CallForward(const Operands& in, const Settings& s, bool return_state) {
  using Signature = Results(
      const at::Tensor&, const at::Tensor&, const at::Tensor&,
      const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
      const OptionalTensor&, const OptionalTensor&, bool, c10::SymInt,
      c10::string_view, c10::string_view, double, double, int64_t, bool);
  static const auto handle = Handle<Signature>("tarn::linear_attention");
  return handle.call(in.queries, in.keys, in.values, in.key_mask,
                     in.key_lengths, in.cu_seqlens, in.initial_S, in.initial_z,
                     s.causal, s.causal_offset, s.feature_map, s.denominator,
                     s.eps, s.scale, s.chunk_size, return_state);
}

Gradients CallBackward(const Operands& in, const GradientOperands& g,
                       const Settings& s) {
  using Signature = Gradients(
      const at::Tensor&, const at::Tensor&, const at::Tensor&,
      const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
      const OptionalTensor&, const OptionalTensor&, const at::Tensor&,
      const at::Tensor&, const at::Tensor&, const OptionalTensor&,
      const OptionalTensor&, bool, c10::SymInt, c10::string_view,
      c10::string_view, double, double, int64_t);
  static const auto handle =
      Handle<Signature>("tarn::linear_attention_backward");
  return handle.call(in.queries, in.keys, in.values, in.key_mask,
                     in.key_lengths, in.cu_seqlens, in.initial_S, in.initial_z,
                     g.out, g.denominators, g.grad_out, g.grad_final_S,
                     g.grad_final_z, s.causal, s.causal_offset, s.feature_map,
                     s.denominator, s.eps, s.scale, s.chunk_size);
}

StepResults CallStep(const StepOperands& in, const Settings& s) {
  using Signature =
      StepResults(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                  const OptionalTensor&, const OptionalTensor&,
                  c10::string_view, c10::string_view, double, double);
  static const auto handle = Handle<Signature>("tarn::linear_attention_step");
  return handle.call(in.queries, in.keys, in.values, in.state_S, in.state_z,
                     s.feature_map, s.denominator, s.eps, s.scale);
}

}  // namespace tarn::ops
