// Position information for models in Python: rows of the tables of
// kernels/positions/positions.h at any places, and the rotation, composed from
// torch's operators. Rows are always computed on the CPU and sent to the device
// of the places: they are few numbers, and the same bits on every device.
#include "torch_ops/layers/positions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "kernels/positions/positions.h"
#include "torch_ops/common/call.h"

namespace tarn::ops {
namespace {

using Tables = std::tuple<at::Tensor, at::Tensor>;

void CheckPlaces(const char* op, const at::Tensor& places) {
  if (places.scalar_type() != at::kLong) {
    throw DTypeError(StrCat(op, ": places"), "Long",
                     c10::toString(places.scalar_type()));
  }
}

void CheckSinusoidal(const at::Tensor& places, int64_t width) {
  CheckPlaces("sinusoidal_rows", places);
  if (width >= 1) return;
  throw ArgumentError("sinusoidal_rows: width", "at least 1", StrCat(width));
}

// How rotary_rows takes it apart.
#define TARN_ROTARY_SCALING                                            \
  std::string_view scaling, double factor, int64_t original_positions, \
      double low, double high, double magnitude, bool truncate

RotaryScaling MakeScaling(TARN_ROTARY_SCALING) {
  RotaryScaling s;
  std::string words;
  for (size_t i = 0; i < std::size(kRotaryScalingWords); ++i) {
    const char* word = kRotaryScalingWords[i];
    if (scaling == word) {
      s = {static_cast<RotaryScalingKind>(i),
           factor,
           original_positions,
           low,
           high,
           magnitude,
           truncate};
      return s;
    }
    words += StrCat(i > 0 ? ", " : "", word);
  }
  throw ArgumentError("rotary_rows: scaling", StrCat("one of ", words),
                      std::string(scaling));
}

void CheckRotary(const at::Tensor& places, int64_t d_key, double base,
                 const RotaryScaling& scaling) {
  CheckPlaces("rotary_rows", places);
  if (d_key < 2 || d_key % 2 != 0) {
    throw ArgumentError("rotary_rows: d_key", "an even number of at least 2",
                        StrCat(d_key));
  }
  if (!(base > 1)) {
    throw ArgumentError("rotary_rows: base", "more than 1", StrCat(base));
  }
  CheckRotaryScaling("rotary_rows: ", base, scaling);
}

// f(place, row) for every place; a negative one throws.
template <typename F>
void ForPlaces(const char* op, const at::Tensor& places, const F& f) {
  const at::Tensor dense = places.to(at::kCPU).contiguous();
  const int64_t* place = dense.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < dense.numel(); ++row) {
    if (place[row] < 0) {
      throw ArgumentError(StrCat(op, ": places"), "0 or more",
                          StrCat(place[row]));
    }
  }
  for (int64_t row = 0; row < dense.numel(); ++row) f(place[row], row);
}

std::vector<c10::SymInt> Shape(const at::Tensor& places,
                               const c10::SymInt& last) {
  std::vector<c10::SymInt> shape = places.sym_sizes().vec();
  shape.push_back(last);
  return shape;
}

at::Tensor EmptyRows(const at::Tensor& places, int64_t last) {
  return at::empty_symint(Shape(places, last), at::kFloat);
}

at::Tensor Sinusoidal(const at::Tensor& places, int64_t width) {
  return WithTorchErrors([&] {
    CheckSinusoidal(places, width);
    const at::Tensor rows = EmptyRows(places, width);
    float* to = rows.mutable_data_ptr<float>();
    ForPlaces("sinusoidal_rows", places, [&](int64_t place, int64_t row) {
      SinusoidalRow(place, width, to + row * width);
    });
    return rows.to(places.device());
  });
}

Tables Rotary(const at::Tensor& places, int64_t d_key, double base,
              TARN_ROTARY_SCALING) {
  return WithTorchErrors([&]() -> Tables {
    const RotaryScaling s = MakeScaling(scaling, factor, original_positions,
                                        low, high, magnitude, truncate);
    CheckRotary(places, d_key, base, s);
    const int64_t half = d_key / 2;
    std::vector<double> frequencies(static_cast<size_t>(half));
    RotaryFrequencies(d_key, base, s, frequencies.data());
    const at::Tensor cos = EmptyRows(places, half),
                     sin = EmptyRows(places, half);
    float* c = cos.mutable_data_ptr<float>();
    float* sines = sin.mutable_data_ptr<float>();
    ForPlaces("rotary_rows", places, [&](int64_t place, int64_t row) {
      RotaryRow(place, d_key, frequencies.data(), c + row * half,
                sines + row * half, RotaryMagnitude(s));
    });
    return {cos.to(places.device()), sin.to(places.device())};
  });
}

at::Tensor SinusoidalMeta(const at::Tensor& places, int64_t width) {
  return WithTorchErrors([&] {
    CheckSinusoidal(places, width);
    return at::empty_symint(Shape(places, width),
                            places.options().dtype(at::kFloat));
  });
}

Tables RotaryMeta(const at::Tensor& places, int64_t d_key, double base,
                  TARN_ROTARY_SCALING) {
  return WithTorchErrors([&]() -> Tables {
    CheckRotary(places, d_key, base,
                MakeScaling(scaling, factor, original_positions, low, high,
                            magnitude, truncate));
    const auto rows = [&] {
      return at::empty_symint(Shape(places, d_key / 2),
                              places.options().dtype(at::kFloat));
    };
    return {rows(), rows()};
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("sinusoidal_rows(Tensor places, int width) -> Tensor");
  m.def(
      "rotary_rows(Tensor places, int d_key, float base, "
      "str scaling='none', float factor=1.0, int original_positions=0, "
      "float low=1.0, float high=0.0, float magnitude=0.0, "
      "bool truncate=True) -> (Tensor cos, Tensor sin)");
  m.def("rotate(Tensor heads, Tensor cos, Tensor sin) -> Tensor", &RotateHeads);
}
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("sinusoidal_rows", &Sinusoidal);
  m.impl("rotary_rows", &Rotary);
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("sinusoidal_rows", &SinusoidalMeta);
  m.impl("rotary_rows", &RotaryMeta);
}

}  // namespace

at::Tensor RotateHeads(const at::Tensor& heads, const at::Tensor& cos,
                       const at::Tensor& sin) {
  const std::vector<at::Tensor> halves = heads.chunk(2, -1);
  return at::cat(
      {halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin},
      -1);
}

}  // namespace tarn::ops
