// Where JavaScript finds the fields of the C interface's structs: interface.js
// reads this, so that no offset is written down twice.
#include <cstddef>
#include <string>
#include <type_traits>

#include "tarn/tarn.h"

namespace {

template <typename T>
std::string FieldText(const char* name, size_t offset) {
  const char* const type = std::is_floating_point_v<T> ? "f"
                           : std::is_pointer_v<T>      ? "p"
                                                       : "i";
  return std::string(" ") + name + "=" + std::to_string(offset) + type +
         std::to_string(sizeof(T) * 8);
}

#define TARN_STRUCT(type) \
  text += std::string(#type) + " size=" + std::to_string(sizeof(type)) + "i0"
#define TARN_FIELD(type, name) \
  text += FieldText<decltype(type::name)>(#name, offsetof(type, name))

std::string AllLayouts() {
  std::string text;
  TARN_STRUCT(tarn_model_options);
  TARN_FIELD(tarn_model_options, struct_size);
  TARN_FIELD(tarn_model_options, weights);
  TARN_FIELD(tarn_model_options, threads);
  TARN_FIELD(tarn_model_options, use_mmap);
  TARN_FIELD(tarn_model_options, exact);
  TARN_FIELD(tarn_model_options, cache);
  text += "\n";
  TARN_STRUCT(tarn_sampler_options);
  TARN_FIELD(tarn_sampler_options, struct_size);
  TARN_FIELD(tarn_sampler_options, temperature);
  TARN_FIELD(tarn_sampler_options, top_k);
  TARN_FIELD(tarn_sampler_options, top_p);
  TARN_FIELD(tarn_sampler_options, min_p);
  TARN_FIELD(tarn_sampler_options, seed);
  TARN_FIELD(tarn_sampler_options, stream);
  TARN_FIELD(tarn_sampler_options, repeat_last_n);
  TARN_FIELD(tarn_sampler_options, repeat_penalty);
  text += "\n";
  TARN_STRUCT(tarn_generate_options);
  TARN_FIELD(tarn_generate_options, struct_size);
  TARN_FIELD(tarn_generate_options, max_tokens);
  TARN_FIELD(tarn_generate_options, sampler);
  text += "\n";
  TARN_STRUCT(tarn_session_token);
  TARN_FIELD(tarn_session_token, struct_size);
  TARN_FIELD(tarn_session_token, token);
  TARN_FIELD(tarn_session_token, end);
  TARN_FIELD(tarn_session_token, text);
  TARN_FIELD(tarn_session_token, bytes);
  return text;
}

}  // namespace

/// A line a struct: its name, then FIELD=OFFSET, i, f or p, and bits. Static.
extern "C" TARN_API const char* tarn_wasm_layouts() {
  static const std::string text = AllLayouts();
  return text.c_str();
}
