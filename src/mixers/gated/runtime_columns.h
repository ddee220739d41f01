// Where the parts of a row are: what the first product made (`in`), and what
// the mixer makes of it (`extra`).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mixers/gated/form.h"

namespace tarn::mixers {

/// Offsets in floats; -1 where a form has no such part.
struct GatedColumns {
  GatedColumns(const GatedForm& form, const GatedSizes& s) {
    const bool gated = form.output_gate != OutputGate::kNone;
    Take(true, "query_projection", s.keys, query);
    Take(!form.bounded(), "key_projection", s.keys, key);
    Take(true, "value_projection", s.values, value);
    Take(gated && !form.low_rank_output_gate, "gate_projection", s.values,
         gate);
    Take(form.low_rank_output_gate, "gate_down_projection", s.rank, gate_down);
    Take(form.projected() && !form.low_rank(), "decay_projection", s.gates,
         decay);
    Take(form.low_rank(), "decay_down_projection", s.rank, decay_down);
    Take(form.delta, "beta_projection", s.heads, beta);
    const auto keep = [this](bool has, int64_t width, int64_t& at) {
      if (!has) return;
      at = extra_width;
      extra_width += width;
    };
    keep(s.width > 0, s.channels, convolved);
    keep(form.bounded(), s.keys, made_keys);
    keep(form.projected(), s.gates, gates);
    keep(form.low_rank_output_gate, s.values, made_gate);
    keep(form.skip, s.values, stepped_values);
    keep(form.mapped, s.heads * s.d_feature, query_features);
    keep(form.mapped, s.heads * s.d_feature, key_features);
    keep(s.phi.has_factor(), s.keys, factors);
    keep(s.phi.divided, s.heads * s.d_sum, counted_values);
    keep(s.phi.divided, s.heads * s.d_sum, sums);
  }

  // The parts of `in`, one for each matrix of the first product: their names
  // and widths, and the column where each begins (-1: the form has none).
  std::vector<std::string> names;
  std::vector<int64_t> widths;
  int64_t query = -1, key = -1, value = -1;
  int64_t gate = -1, gate_down = -1, decay = -1, decay_down = -1, beta = -1;
  // The columns of `extra` where its parts begin; -1 as above.
  int64_t convolved = -1;  // queries, keys and values after the convolution
  int64_t made_keys = -1, gates = -1, made_gate = -1;
  int64_t stepped_values = -1;  // dt x
  // phi of queries and of keys, and a factor of either on its way.
  int64_t query_features = -1, key_features = -1, factors = -1;
  // Values with a 1 after those of each head, and what the recurrence makes.
  int64_t counted_values = -1, sums = -1;
  int64_t extra_width = 0;

 private:
  void Take(bool has, const char* name, int64_t width, int64_t& at) {
    if (!has) return;
    names.push_back(name);
    widths.push_back(width);
    at = in_width_;
    in_width_ += width;
  }
  int64_t in_width_ = 0;
};

}  // namespace tarn::mixers
