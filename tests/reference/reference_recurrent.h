// The layers of RetNet, Lightning, Mamba, Mamba-2, GLA, HGRN2, DeltaNet, Gated
// DeltaNet, KDA, RWKV-6, RWKV-7, LFM2, Griffin and xLSTM a second time: token
// by token in double, each written from its paper's equations, and no code of
// the project but the names of tensors and sizes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "core/text.h"

namespace tarn::testing {

class ReferenceRecurrent {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  /// name: the prefix of the layer's tensors, "layers.0.attention.".
  ReferenceRecurrent(const ModelConfig& view,
                     const std::map<std::string, std::vector<float>>& tensors,
                     std::string name)
      : c_(view),
        tensors_(tensors),
        name_(std::move(name)),
        kind_(Name(view.attention)),
        heads_(view.n_heads),
        keys_(view.d_key),
        values_(view.d_value) {}

  static bool Knows(const std::string& kind) {
    for (const char* known :
         {"retnet", "lightning", "mamba2", "gla", "hgrn2", "deltanet", "gdn",
          "kda", "norm-linear", "rwkv6", "rwkv7", "mamba1", "short-conv",
          "rg-lru", "mlstm"}) {
      if (kind == known) return true;
    }
    return false;
  }

  // first: the values of the first RWKV-7 layer, which sets them.
  Rows Run(const Rows& x, Rows* first) const {
    if (Is("mamba1")) return Mamba(x);
    if (Is("short-conv")) return ShortConv(x);
    if (Is("rg-lru")) return Lru(x);
    if (Is("mlstm")) return Mlstm(x);
    if (Is("norm-linear")) return NormLinear(x);
    return kind_.starts_with("rwkv") ? Rwkv(x, first) : Gated(x);
  }

 private:
  bool Is(const char* kind) const { return kind_ == kind; }

  Row Weight(const std::string& name) const {
    const auto& floats = tensors_.at(name_ + name);
    return Row(floats.begin(), floats.end());
  }
  Row Linear(const std::string& name, const Row& x) const {
    const Row w = Weight(name + ".weight");
    const auto bias = tensors_.find(name_ + name + ".bias");
    Row y;
    for (size_t n = 0; n < w.size() / x.size(); ++n) {
      double sum = bias == tensors_.end() ? 0 : bias->second[n];
      for (size_t k = 0; k < x.size(); ++k) sum += w[n * x.size() + k] * x[k];
      y.push_back(sum);
    }
    return y;
  }
  static double Sigma(double x) { return 1 / (1 + std::exp(-x)); }
  static double Softplus(double x) {
    return x > 30 ? x : std::log1p(std::exp(x));
  }
  template <typename F>
  static Row Each(Row x, const F& f) {
    for (double& v : x) v = f(v);
    return x;
  }
  static Row Silu(Row x) {
    return Each(std::move(x), [](double v) { return v * Sigma(v); });
  }

  // y_t = silu(bias + sum_j w_j x_{t-W+1+j}), a channel of q, k, v.
  Rows Convolved(const Rows& x) const {
    if (KeyOf<int64_t>(c_, "conv_width") == 0) {
      Rows y;
      for (const Row& row : x) y.push_back(Silu(row));
      return y;
    }
    const Row w = Weight("convolution.weight");
    const Row bias =
        kind_.starts_with("mamba") ? Weight("convolution.bias") : Row{};
    Rows y;
    for (int64_t t = 0; t < static_cast<int64_t>(x.size()); ++t) {
      Row row;
      for (size_t ch = 0; ch < x[0].size(); ++ch) {
        double sum = bias.empty() ? 0 : bias[ch];
        for (int64_t j = 0; j < KeyOf<int64_t>(c_, "conv_width"); ++j) {
          const int64_t at = t - KeyOf<int64_t>(c_, "conv_width") + 1 + j;
          if (at >= 0) {
            sum +=
                w[ch * static_cast<size_t>(KeyOf<int64_t>(c_, "conv_width")) +
                  static_cast<size_t>(j)] *
                x[static_cast<size_t>(at)][ch];
          }
        }
        row.push_back(sum);
      }
      y.push_back(Silu(row));
    }
    return y;
  }

  // Of the output norm; times: how often the model's it is by itself.
  double NormEps(int64_t times) const {
    const double given = KeyOf<double>(c_, "output_norm_eps");
    return given > 0 ? given : c_.norm_eps * static_cast<double>(times);
  }
  static void Unit(Row& x, int64_t width, double eps = 1e-6) {
    for (size_t at = 0; at < x.size(); at += static_cast<size_t>(width)) {
      double sum = eps;
      for (int64_t i = 0; i < width; ++i) sum += x[at + i] * x[at + i];
      for (int64_t i = 0; i < width; ++i) x[at + i] /= std::sqrt(sum);
    }
  }
  // Root mean square, or variance after the mean, over runs of `width`.
  Row Normed(Row x, int64_t width, bool centred, double eps,
             const std::string& name = "norm") const {
    const Row weight = Weight(name + ".weight");
    const Row bias = centred ? Weight("norm.bias") : Row{};
    for (size_t at = 0; at < x.size(); at += static_cast<size_t>(width)) {
      double mean = 0, square = 0;
      for (int64_t i = 0; centred && i < width; ++i) {
        mean += x[at + i] / static_cast<double>(width);
      }
      for (int64_t i = 0; i < width; ++i) {
        square += (x[at + i] - mean) * (x[at + i] - mean) /
                  static_cast<double>(width);
      }
      for (int64_t i = 0; i < width; ++i) {
        x[at + i] = (x[at + i] - mean) / std::sqrt(square + eps) *
                        weight[(at + i) % weight.size()] +
                    (centred ? bias[at + i] : 0);
      }
    }
    return x;
  }

  // Su et al. 2021, halves of each head.
  Row Turned(const Row& x, size_t t) const {
    Row y = x;
    const size_t width = static_cast<size_t>(keys_), half = width / 2;
    for (size_t at = 0; at < x.size(); at += width) {
      for (size_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(t) *
            std::pow(c_.rotary_base, -2.0 * static_cast<double>(i) /
                                         static_cast<double>(width));
        const double a = x[at + i], b = x[at + i + half];
        y[at + i] = a * std::cos(angle) - b * std::sin(angle);
        y[at + i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
    return y;
  }

  // dt of Mamba-2 and Gated DeltaNet, kept between the limits of the first.
  double Step(double x) const {
    const double dt = Softplus(x);
    if (!Is("mamba2")) return dt;
    const double most = KeyOf<double>(c_, "most_step");
    return std::max(most > 0 ? std::min(dt, most) : dt,
                    KeyOf<double>(c_, "least_step"));
  }

  // Decay factors of a token, [H, K], and for HGRN2 its keys.
  Row Factors(const Row& x, size_t, Row& keys) const {
    const size_t count = static_cast<size_t>(heads_ * keys_);
    Row f(count, 1.0);
    if (Is("retnet") || Is("lightning")) {
      const Row log = Weight("log_decay");
      for (size_t i = 0; i < count; ++i) {
        f[i] = std::exp(log[i / static_cast<size_t>(keys_)]);
      }
    } else if (Is("mamba2") || Is("gdn")) {
      const Row a = Linear("decay_projection", x), rate = Weight("A_log"),
                bias = Weight("dt_bias");
      for (size_t i = 0; i < count; ++i) {
        const size_t h = i / static_cast<size_t>(keys_);
        f[i] = std::exp(-std::exp(rate[h]) * Step(a[h] + bias[h]));
      }
    } else if (Is("kda")) {
      const Row a = Linear("decay_up_projection",
                           Linear("decay_down_projection", x)),
                rate = Weight("A_log"), bias = Weight("dt_bias");
      for (size_t i = 0; i < count; ++i) {
        f[i] = std::exp(-std::exp(rate[i / static_cast<size_t>(keys_)]) *
                        Softplus(a[i] + bias[i]));
      }
    } else if (Is("gla")) {
      const Row a =
          Linear("decay_up_projection", Linear("decay_down_projection", x));
      for (size_t i = 0; i < count; ++i) f[i] = std::pow(Sigma(a[i]), 1.0 / 16);
    } else if (Is("hgrn2")) {
      const Row a = Linear("decay_projection", x), low = LowerBounds();
      keys.clear();
      for (size_t i = 0; i < count; ++i) {
        f[i] = low[i] + (1 - low[i]) * Sigma(a[i]);
        keys.push_back(1 - f[i]);
      }
    }
    return f;
  }

  // Of HGRN2: fixed, or by the definition from the logits of all layers.
  Row LowerBounds() const {
    if (!KeyOf<bool>(c_, "learned_bounds")) return Weight("lower_bound");
    const size_t width = static_cast<size_t>(heads_ * keys_);
    const size_t layer = std::stoul(name_.substr(name_.find("layers.") + 7));
    Row bounds(width);
    for (const auto& [name, logits] : tensors_) {
      if (!name.ends_with("bound_logits")) continue;
      for (size_t c = 0; c < width; ++c) {
        double below = 0, all = 0;
        for (size_t i = 0; i * width < logits.size(); ++i) {
          const double share = std::exp(double{logits[i * width + c]});
          all += share;
          if (i >= 1 && i <= layer) below += share;
        }
        bounds[c] = below / all;
      }
    }
    return bounds;
  }

  // What follows the recurrence of a token.
  Row Output(Row o, const Row& x, const Row& v) const {
    if (Is("mamba2")) {
      const Row d = Weight("D");
      for (size_t i = 0; i < o.size(); ++i) {
        o[i] += d[i / static_cast<size_t>(values_)] * v[i];
      }
    }
    // 0: the mixer's own; none, silu, sigma.
    int64_t gate = KeyOf<int64_t>(c_, "gate_activation");
    if (gate == 0 || Is("mamba2")) {
      gate = Is("kda") || Is("lightning")                         ? 3
             : Is("hgrn2") || Is("deltanet") || Is("norm-linear") ? 1
                                                                  : 2;
    }
    Row z(o.size(), 1.0);
    if (gate > 1) {
      z = Is("kda")
              ? Linear("gate_up_projection", Linear("gate_down_projection", x))
              : Linear("gate_projection", x);
      z = gate == 2 ? Silu(z) : Each(z, Sigma);
    }
    const int64_t all = heads_ * values_;
    const int64_t groups = KeyOf<int64_t>(c_, "key_heads") > 0
                               ? KeyOf<int64_t>(c_, "key_heads")
                               : heads_;
    const int64_t width = Is("mamba2")                     ? all / groups
                          : Is("lightning") || Is("hgrn2") ? all
                                                           : values_;
    const auto times = [&](Row row) {
      for (size_t i = 0; i < row.size(); ++i) row[i] *= z[i];
      return row;
    };
    const double eps = NormEps(1);
    if (Is("mamba2") && !KeyOf<bool>(c_, "mamba2_norm")) return times(o);
    return Is("mamba2") && !KeyOf<bool>(c_, "mamba2_norm_first")
               ? Normed(times(o), width, false, eps)
               : times(Normed(o, width, false, eps));
  }

  // S = f S, the delta rule's value, S += k v^T, o = scale S^T q, a head.
  Rows Gated(const Rows& x) const {
    const bool delta = Is("deltanet") || Is("gdn") || Is("kda");
    const bool convolved = delta || Is("mamba2");
    const bool grouped = convolved;
    const int64_t key_heads = grouped && KeyOf<int64_t>(c_, "key_heads") > 0
                                  ? KeyOf<int64_t>(c_, "key_heads")
                                  : heads_;
    const size_t k_width = static_cast<size_t>(key_heads * keys_);
    Rows q, k, v, packed, out;
    for (const Row& row : x) {
      q.push_back(Linear("query_projection", row));
      k.push_back(Is("hgrn2") ? Row(k_width) : Linear("key_projection", row));
      v.push_back(Linear("value_projection", row));
    }
    if (convolved) {
      for (size_t t = 0; t < x.size(); ++t) {
        Row row = q[t];
        row.insert(row.end(), k[t].begin(), k[t].end());
        row.insert(row.end(), v[t].begin(), v[t].end());
        packed.push_back(row);
      }
      packed = Convolved(packed);
    }
    std::vector<Row> state(static_cast<size_t>(heads_),
                           Row(static_cast<size_t>(keys_ * values_)));
    const double scale = Is("lightning") || Is("mamba2")
                             ? 1.0
                             : 1 / std::sqrt(static_cast<double>(keys_));
    for (size_t t = 0; t < x.size(); ++t) {
      if (convolved) {
        const auto at = packed[t].begin();
        q[t].assign(at, at + k_width);
        k[t].assign(at + k_width, at + 2 * k_width);
        v[t].assign(at + 2 * k_width, packed[t].end());
      }
      if (delta) {
        Unit(q[t], keys_);
        Unit(k[t], keys_);
      }
      if (Is("lightning") || Is("hgrn2")) q[t] = Silu(q[t]);
      if (Is("lightning")) {
        k[t] = Silu(k[t]);
        v[t] = Silu(v[t]);
      }
      if (Is("retnet") && c_.positions == Positions::kRotary) {
        q[t] = Turned(q[t], t);
        k[t] = Turned(k[t], t);
      }
      const Row f = Factors(x[t], t, k[t]);
      const Row plain = v[t];
      Row step(static_cast<size_t>(heads_), 1.0);
      if (Is("mamba2")) {
        const Row a = Linear("decay_projection", x[t]), b = Weight("dt_bias");
        for (size_t h = 0; h < step.size(); ++h) step[h] = Step(a[h] + b[h]);
      }
      Row beta(static_cast<size_t>(heads_), 1.0);
      if (delta) {
        beta = Each(Linear("beta_projection", x[t]), Sigma);
        if (KeyOf<bool>(c_, "negative_eigenvalues")) {
          for (double& b : beta) b *= 2;
        }
      }
      Row o;
      for (int64_t h = 0; h < heads_; ++h) {
        Row& s = state[static_cast<size_t>(h)];
        const double* kh = k[t].data() + h / (heads_ / key_heads) * keys_;
        const double* qh = q[t].data() + h / (heads_ / key_heads) * keys_;
        for (int64_t j = 0; j < values_; ++j) {
          double held = 0, read = 0;
          for (int64_t i = 0; i < keys_; ++i) {
            s[i * values_ + j] *= f[static_cast<size_t>(h * keys_ + i)];
            held += s[i * values_ + j] * kh[i];
          }
          double value = step[h] * v[t][static_cast<size_t>(h * values_ + j)];
          if (delta) value = beta[h] * (value - held);
          for (int64_t i = 0; i < keys_; ++i) {
            s[i * values_ + j] += kh[i] * value;
            read += s[i * values_ + j] * qh[i];
          }
          o.push_back(scale * read);
        }
      }
      out.push_back(Linear("out_projection", Output(o, x[t], plain)));
    }
    return out;
  }

  // phi of a head's query or key, by the word's place in form_features.h.
  Row Feature(const std::string& side, const Row& x) const {
    enum { kElu1, kIdentity, kRelu, kHadamard, kT2r, kHedgehog, kDpfp };
    const auto positive = [](double v) { return v > 0 ? v : 0; };
    Row y;
    switch (KeyOf<int64_t>(c_, "qk_map")) {
      case kElu1:
        y = Each(x, [](double v) { return v > 0 ? v + 1 : std::exp(v); });
        break;
      case kIdentity:
        y = x;
        break;
      case kRelu:
        y = Each(x, positive);
        break;
      case kHadamard: {
        y = Linear(side + "_map_projection", x);
        const Row factor = Linear(side + "_factor_projection", x);
        for (size_t i = 0; i < y.size(); ++i) y[i] *= factor[i];
        break;
      }
      case kT2r:
        y = Each(Linear(side + "_map_projection", x), positive);
        break;
      case kHedgehog: {
        double sum = 0;
        for (const double sign : {2.0, -2.0}) {
          for (const double v : Linear(side + "_map_projection", x)) {
            y.push_back(std::exp(sign * v));
            sum += y.back();
          }
        }
        for (double& v : y) v /= sum;
        break;
      }
      case kDpfp: {
        Row r = Each(x, positive);
        for (const double v : x) r.push_back(positive(-v));
        for (size_t j = 1; j <= 4; ++j) {
          for (size_t i = 0; i < r.size(); ++i) {
            y.push_back(r[i] * r[(i + r.size() - j) % r.size()]);
          }
        }
      }
    }
    if (KeyOf<bool>(c_, side == "query" ? "unit_queries" : "unit_keys")) {
      double sum = 1e-4;
      for (const double v : y) sum += v;
      for (double& v : y) v /= sum;
    }
    return y;
  }

  // Every pair of tokens: o_i = sum_j (phi(q_i) . phi(k_j)) v_j C^-1/2.
  Rows NormLinear(const Rows& x) const {
    const size_t keys = static_cast<size_t>(keys_);
    std::vector<Rows> q, k;  // by token and head
    Rows v, out;
    for (const Row& row : x) {
      for (const char* side : {"query", "key"}) {
        const Row all = Linear(StrCat(side, "_projection"), row);
        Rows heads;
        for (size_t at = 0; at < all.size(); at += keys) {
          heads.push_back(
              Feature(side, Row(all.begin() + at, all.begin() + at + keys)));
        }
        (side == std::string("query") ? q : k).push_back(heads);
      }
      v.push_back(Linear("value_projection", row));
      Row o(v[0].size());
      for (size_t h = 0; h < q[0].size(); ++h) {
        const Row& query = q.back()[h];
        double divisor = 1e-10;
        for (size_t j = 0; j < v.size(); ++j) {
          double score = 0;
          for (size_t c = 0; c < query.size(); ++c) {
            score += query[c] * k[j][h][c];
          }
          score /= std::sqrt(static_cast<double>(query.size()));
          divisor += score;
          for (size_t i = 0; i < static_cast<size_t>(values_); ++i) {
            const size_t at = h * static_cast<size_t>(values_) + i;
            o[at] += score * v[j][at];
          }
        }
        if (!KeyOf<bool>(c_, "divided_sums")) continue;
        for (size_t i = 0; i < static_cast<size_t>(values_); ++i) {
          o[h * static_cast<size_t>(values_) + i] /= divisor;
        }
      }
      out.push_back(Linear("out_projection", Output(o, row, v.back())));
    }
    return out;
  }

  // What Mamba-1 makes of a token, normalised where the layer says so.
  Row Selected(const std::string& name, const Row& u) const {
    const Row made = Linear(name + "_projection", u);
    if (!KeyOf<bool>(c_, "selection_norm")) return made;
    const double eps = KeyOf<double>(c_, "selection_norm_eps");
    return Normed(made, static_cast<int64_t>(made.size()), false,
                  eps > 0 ? eps : c_.norm_eps, name + "_norm");
  }

  // h = exp(dt A) h + dt B u, o = C h + D u, a channel (Gu and Dao 2023,
  // arXiv 2312.00752, eq. (2a), with the step of algorithm 2).
  Rows Mamba(const Rows& x) const {
    Rows values, out;
    for (const Row& row : x) values.push_back(Linear("value_projection", row));
    values = Convolved(values);
    const Row logs = Weight("A_log"), skip = Weight("D");
    const Row bias = Weight("dt_bias");
    const size_t n = static_cast<size_t>(keys_);
    Row h(logs.size());
    for (size_t t = 0; t < x.size(); ++t) {
      const Row& u = values[t];
      const Row steps =
          Linear("decay_up_projection", Selected("decay_down", u));
      const Row b = Selected("key", u), c = Selected("query", u);
      const Row z = Silu(Linear("gate_projection", x[t]));
      Row o;
      for (size_t d = 0; d < u.size(); ++d) {
        const double dt = Softplus(steps[d] + bias[d]);
        double read = skip[d] * u[d];
        for (size_t i = 0; i < n; ++i) {
          double& state = h[d * n + i];
          const double rate = -std::exp(logs[d * n + i]);
          state = std::exp(dt * rate) * state + dt * b[i] * u[d];
          read += c[i] * state;
        }
        o.push_back(read * z[d]);
      }
      out.push_back(Linear("out_projection", o));
    }
    return out;
  }

  // Channel `ch` at token t of the convolution, without its activation.
  double Filtered(const Rows& x, size_t t, size_t ch) const {
    const Row w = Weight("convolution.weight");
    const auto bias = tensors_.find(name_ + "convolution.bias");
    double sum = bias == tensors_.end() ? 0 : bias->second[ch];
    const size_t width = w.size() / x[0].size();
    for (size_t back = 0; back < width && back <= t; ++back) {
      sum += w[ch * width + width - 1 - back] * x[t - back][ch];
    }
    return sum;
  }

  // q * conv(k * v), of LFM2.
  Rows ShortConv(const Rows& x) const {
    Rows written, out;
    for (const Row& row : x) {
      const Row keys = Linear("key_projection", row);
      written.push_back(Linear("value_projection", row));
      for (size_t c = 0; c < keys.size(); ++c) written.back()[c] *= keys[c];
    }
    for (size_t t = 0; t < x.size(); ++t) {
      Row o = Linear("query_projection", x[t]);
      for (size_t c = 0; c < o.size(); ++c) o[c] *= Filtered(written, t, c);
      out.push_back(Linear("out_projection", o));
    }
    return out;
  }

  // sigma(W u + b), W of blocks on the diagonal.
  Row Gate(const std::string& name, const Row& u) const {
    const Row w = Weight(name + ".weight");
    Row y = Weight(name + ".bias");
    const size_t n = static_cast<size_t>(values_);
    for (size_t c = 0; c < y.size(); ++c) {
      for (size_t k = 0; k < n; ++k) y[c] += w[c * n + k] * u[c / n * n + k];
      y[c] = Sigma(y[c]);
    }
    return y;
  }

  // The real-gated linear recurrent unit (De et al. 2024, arXiv 2402.19427,
  // eq. (1)-(4)), whose first token writes its gated input as it is.
  Rows Lru(const Rows& x) const {
    Rows values, out;
    for (const Row& row : x) values.push_back(Linear("value_projection", row));
    const Row lambda = Weight("Lambda");
    Row h(lambda.size());
    for (size_t t = 0; t < x.size(); ++t) {
      Row u = values[t];
      if (KeyOf<int64_t>(c_, "conv_width") > 0) {
        for (size_t c = 0; c < u.size(); ++c) u[c] = Filtered(values, t, c);
      }
      const Row in = Gate("input_gate", u), r = Gate("recurrence_gate", u);
      Row o = Linear("gate_projection", x[t]);
      for (size_t c = 0; c < h.size(); ++c) {
        const double a = std::exp(-8 * Softplus(lambda[c]) * r[c]);
        const double root = t == 0 ? 1 : std::sqrt(1 - a * a);
        h[c] = a * h[c] + root * in[c] * u[c];
        const double z = o[c];
        const double inner = 0.7978845608028654 * (z + 0.044715 * z * z * z);
        o[c] = h[c] * z / 2 * (1 + std::tanh(inner));
      }
      out.push_back(Linear("out_projection", o));
    }
    return out;
  }

  // mLSTM (Beck et al. 2024, arXiv 2405.04517, eq. (19)-(27)) without its
  // running maximum, which double does not need: only the 1e-6 knows of it.
  Rows Mlstm(const Rows& x) const {
    const double cap = KeyOf<double>(c_, "gate_softcap");
    const auto capped = [&](Row y) {
      return cap == 0 ? y : Each(std::move(y), [cap](double v) {
        return cap * std::tanh(v / cap);
      });
    };
    const size_t heads = static_cast<size_t>(heads_);
    const size_t wide = static_cast<size_t>(values_);
    const size_t deep = static_cast<size_t>(keys_);
    Row c(heads * deep * wide), n(heads * deep), m(heads);
    Rows out;
    for (const Row& row : x) {
      const Row q = Linear("query_projection", row);
      const Row k = Linear("key_projection", row);
      const Row v = Linear("value_projection", row);
      const Row i = capped(Linear("input_projection", row));
      const Row f = capped(Linear("forget_projection", row));
      Row h(heads * wide);
      for (size_t a = 0; a < heads; ++a) {
        const double kept = Sigma(f[a]);
        m[a] = std::max(std::log(kept) + m[a], i[a]);
        double sum = 0;
        for (size_t d = a * deep; d < (a + 1) * deep; ++d) {
          const double scaled = q[d] / std::sqrt(static_cast<double>(deep));
          n[d] = kept * n[d] + std::exp(i[a]) * k[d];
          sum += n[d] * scaled;
          for (size_t e = 0; e < wide; ++e) {
            double& entry = c[d * wide + e];
            entry = kept * entry + std::exp(i[a]) * k[d] * v[a * wide + e];
            h[a * wide + e] += entry * scaled;
          }
        }
        sum = std::max(std::fabs(sum), 1.0) + 1e-6 * std::exp(m[a]);
        for (size_t e = 0; e < wide; ++e) h[a * wide + e] /= sum;
      }
      const Row weight = Weight("norm.weight");
      const Row z = Linear("gate_projection", row);
      for (size_t a = 0; a < heads; ++a) {
        double mean = 0, square = 0;
        for (size_t e = 0; e < wide; ++e) mean += h[a * wide + e] / values_;
        for (size_t e = 0; e < wide; ++e) {
          square += std::pow(h[a * wide + e] - mean, 2) / values_;
        }
        for (size_t at = a * wide; at < (a + 1) * wide; ++at) {
          h[at] = (h[at] - mean) / std::sqrt(square + c_.norm_eps) *
                  weight[at] * Sigma(z[at]);
        }
      }
      out.push_back(Linear("out_projection", h));
    }
    return out;
  }

  // Rows y + D * mix, D the difference to the row before.
  static Row Mixed(const Row& y, const Row& before, const Row& mix) {
    Row row;
    for (size_t i = 0; i < y.size(); ++i) {
      row.push_back(y[i] + mix[i] * (before[i] - y[i]));
    }
    return row;
  }
  // Mixtures for query, decay, key, value, gate, and rate in RWKV-7.
  std::vector<Row> Mixtures(const Row& y, const Row& before) const {
    const size_t d = y.size(), inputs = Is("rwkv7") ? 6 : 5;
    const Row shift = Weight("token_shift");
    std::vector<Row> mixes;
    for (size_t n = 0; n < inputs; ++n) {
      mixes.emplace_back(shift.begin() + n * d, shift.begin() + (n + 1) * d);
    }
    if (Is("rwkv6")) {
      const Row down = Each(Linear("shift_down_projection",
                                   Mixed(y, before, Weight("shift_base"))),
                            [](double v) { return std::tanh(v); });
      const Row up = Weight("shift_up_projection.weight");
      const size_t rank = down.size() / inputs;
      for (size_t n = 0; n < inputs; ++n) {
        for (size_t i = 0; i < d; ++i) {
          for (size_t r = 0; r < rank; ++r) {
            mixes[n][i] += up[(n * d + i) * rank + r] * down[n * rank + r];
          }
        }
      }
    }
    for (Row& mix : mixes) mix = Mixed(y, before, mix);
    return mixes;
  }

  Rows Rwkv(const Rows& x, Rows* first) const {
    const size_t width = static_cast<size_t>(heads_ * keys_);
    std::vector<Row> state(static_cast<size_t>(heads_),
                           Row(static_cast<size_t>(keys_ * keys_)));
    const Row bonus = Weight("bonus");
    const auto tanh = [](double v) { return std::tanh(v); };
    Rows out;
    for (size_t t = 0; t < x.size(); ++t) {
      const std::vector<Row> y =
          Mixtures(x[t], t > 0 ? x[t - 1] : Row(x[t].size()));
      const Row q = Linear("query_projection", y[0]);
      Row k = Linear("key_projection", y[2]);
      Row v = Linear("value_projection", y[3]);
      if (tensors_.contains(name_ + "value_up_projection.bias")) {
        const Row share = Each(Linear("value_up_projection",
                                      Linear("value_down_projection", y[3])),
                               Sigma);
        for (size_t i = 0; i < width; ++i) {
          v[i] += (first->at(t)[i] - v[i]) * share[i];
        }
      } else if (KeyOf<bool>(c_, "value_residual")) {
        first->resize(std::max(first->size(), t + 1));
        first->at(t) = v;
      }
      const Row w = Linear("decay_up_projection",
                           Each(Linear("decay_down_projection", y[1]), tanh));
      Row f, reads(width), writes(width), gate, o;
      if (Is("rwkv7")) {
        const Row a = Each(
            Linear("rate_up_projection", Linear("rate_down_projection", y[5])),
            Sigma);
        gate = Linear("gate_up_projection",
                      Each(Linear("gate_down_projection", y[4]), Sigma));
        const Row scale = Weight("key_scale"), rate = Weight("key_rate");
        Row c;
        for (size_t i = 0; i < width; ++i) c.push_back(k[i] * scale[i]);
        Unit(c, keys_, KeyOf<double>(c_, "unit_eps"));
        for (size_t i = 0; i < width; ++i) {
          f.push_back(std::exp(-std::exp(-0.5) * Sigma(w[i])));
          k[i] *= 1 + (a[i] - 1) * rate[i];
          reads[i] = -c[i];
          writes[i] = c[i] * a[i];
        }
      } else {
        gate = Silu(Linear("gate_projection", y[4]));
        for (size_t i = 0; i < width; ++i) {
          f.push_back(std::exp(-std::exp(w[i])));
        }
      }
      for (int64_t h = 0; h < heads_; ++h) {
        Row& s = state[static_cast<size_t>(h)];
        const size_t at = static_cast<size_t>(h * keys_);
        for (int64_t j = 0; j < keys_; ++j) {
          double held = 0, read = 0;
          for (int64_t i = 0; i < keys_; ++i) {
            held += s[i * keys_ + j] * reads[at + i];
          }
          for (int64_t i = 0; i < keys_; ++i) {
            double& entry = s[i * keys_ + j];
            const double add = k[at + i] * v[at + j];
            if (Is("rwkv6")) read += (entry + bonus[at + i] * add) * q[at + i];
            entry = f[at + i] * entry + writes[at + i] * held + add;
            if (Is("rwkv7")) read += entry * q[at + i];
          }
          o.push_back(read);
        }
      }
      o = Normed(o, keys_, true, NormEps(keys_));
      for (int64_t h = 0; Is("rwkv7") && h < heads_; ++h) {
        const size_t at = static_cast<size_t>(h * keys_);
        double own = 0;
        for (int64_t i = 0; i < keys_; ++i) {
          own += q[at + i] * k[at + i] * bonus[at + i];
        }
        for (int64_t i = 0; i < keys_; ++i) o[at + i] += own * v[at + i];
      }
      for (size_t i = 0; i < width; ++i) o[i] *= gate[i];
      out.push_back(Linear("out_projection", o));
    }
    return out;
  }

  const ModelConfig c_;
  const std::map<std::string, std::vector<float>>& tensors_;
  const std::string name_, kind_;
  const int64_t heads_, keys_, values_;
};

}  // namespace tarn::testing
