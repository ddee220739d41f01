#include "kernels/linear_attention/linear_attention_ref.h"

namespace tarn::reference {
namespace {

double Phi(FeatureMap map, double x) {
  if (map == FeatureMap::kIdentity) return x;
  if (map == FeatureMap::kRelu) return x > 0 ? x : 0;
  if (map == FeatureMap::kRelu2) return x > 0 ? x * x : 0;
  if (map == FeatureMap::kSoftplus) return std::log1p(std::exp(x));
  return x > 0 ? x + 1 : std::exp(x);
}

double Slope(FeatureMap map, double x) {
  if (map == FeatureMap::kIdentity) return 1;
  if (map == FeatureMap::kRelu) return x > 0;
  if (map == FeatureMap::kRelu2) return x > 0 ? 2 * x : 0;
  if (map == FeatureMap::kSoftplus) return 1 / (1 + std::exp(-x));
  return x > 0 ? 1 : std::exp(x);
}

// Everything about one query row of one value head.
struct Row {
  std::vector<double> weights;  // a_i . b_j for allowed j, else 0
  std::vector<double> numerator;
  double denominator = 1;  // the divisor; 0 for an empty row
};

class Terms {
 public:
  explicit Terms(const Problem& p) : p_(p) {
    for (double q : p.queries) {
      a_.push_back(p.options.scale * Phi(p.options.feature_map, q));
    }
    for (double k : p.keys) b_.push_back(Phi(p.options.feature_map, k));
  }

  double A(int64_t i, int64_t h, int64_t k) const {
    return a_[(i * p_.heads + h) * p_.d_key + k];
  }
  double B(int64_t j, int64_t h, int64_t k) const {
    return b_[(j * p_.heads + h) * p_.d_key + k];
  }
  double V(int64_t j, int64_t hv, int64_t v) const {
    return p_.values[(j * p_.value_heads + hv) * p_.d_value + v];
  }
  double S(int64_t hv, int64_t k, int64_t v) const {
    return p_.S.empty() ? 0 : p_.S[(hv * p_.d_key + k) * p_.d_value + v];
  }
  double Z(int64_t hv, int64_t k) const {
    return p_.z.empty() ? 0 : p_.z[hv * p_.d_key + k];
  }
  int64_t Head(int64_t hv) const { return hv / (p_.value_heads / p_.heads); }
  bool Allowed(int64_t i, int64_t j) const {
    if (!p_.kept[j]) return false;
    return !p_.options.causal || j <= i + p_.options.causal_offset;
  }

  Row RowAt(int64_t i, int64_t hv) const {
    const int64_t h = Head(hv);
    Row row;
    row.weights.assign(p_.seq_len_k, 0);
    row.numerator.assign(p_.d_value, 0);
    double sum = 0;
    for (int64_t k = 0; k < p_.d_key; ++k) sum += A(i, h, k) * Z(hv, k);
    for (int64_t v = 0; v < p_.d_value; ++v) {
      for (int64_t k = 0; k < p_.d_key; ++k) {
        row.numerator[v] += A(i, h, k) * S(hv, k, v);
      }
    }
    for (int64_t j = 0; j < p_.seq_len_k; ++j) {
      if (!Allowed(i, j)) continue;
      for (int64_t k = 0; k < p_.d_key; ++k) {
        row.weights[j] += A(i, h, k) * B(j, h, k);
      }
      sum += row.weights[j];
      for (int64_t v = 0; v < p_.d_value; ++v) {
        row.numerator[v] += row.weights[j] * V(j, hv, v);
      }
    }
    switch (p_.options.denominator) {
      case Denominator::kNone:
        row.denominator = 1;
        break;
      case Denominator::kCompat:
        row.denominator = sum + p_.options.eps;
        break;
      case Denominator::kSigned:  // not in the kernel
      case Denominator::kExact:
        row.denominator = sum <= 0 ? 0 : sum;
        break;
    }
    return row;
  }

 private:
  const Problem& p_;
  std::vector<double> a_, b_;  // features: each is read once per pair of tokens
};

}  // namespace

Result Forward(const Problem& p) {
  const Terms terms(p);
  Result r;
  r.out.assign(p.seq_len_q * p.value_heads * p.d_value, 0);
  r.S.assign(p.value_heads * p.d_key * p.d_value, 0);
  r.z.assign(p.value_heads * p.d_key, 0);
  for (int64_t hv = 0; hv < p.value_heads; ++hv) {
    for (int64_t i = 0; i < p.seq_len_q; ++i) {
      const Row row = terms.RowAt(i, hv);
      for (int64_t v = 0; v < p.d_value; ++v) {
        r.out[(i * p.value_heads + hv) * p.d_value + v] =
            row.denominator == 0 ? 0 : row.numerator[v] / row.denominator;
      }
    }
    for (int64_t k = 0; k < p.d_key; ++k) {
      double& z = r.z[hv * p.d_key + k];
      z = terms.Z(hv, k);
      for (int64_t v = 0; v < p.d_value; ++v) {
        r.S[(hv * p.d_key + k) * p.d_value + v] = terms.S(hv, k, v);
      }
      for (int64_t j = 0; j < p.seq_len_k; ++j) {
        if (!p.kept[j]) continue;
        const double b = terms.B(j, terms.Head(hv), k);
        z += b;
        for (int64_t v = 0; v < p.d_value; ++v) {
          r.S[(hv * p.d_key + k) * p.d_value + v] += b * terms.V(j, hv, v);
        }
      }
    }
  }
  return r;
}

Gradients Backward(const Problem& p, const std::vector<double>& grad_out,
                   const std::vector<double>& grad_S,
                   const std::vector<double>& grad_z) {
  const Terms terms(p);
  Gradients g;
  std::vector<double> da(p.queries.size(), 0), db(p.keys.size(), 0);
  g.values.assign(p.values.size(), 0);
  g.S = grad_S.empty()
            ? std::vector<double>(p.value_heads * p.d_key * p.d_value, 0)
            : grad_S;
  g.z =
      grad_z.empty() ? std::vector<double>(p.value_heads * p.d_key, 0) : grad_z;
  for (int64_t hv = 0; hv < p.value_heads; ++hv) {
    const int64_t h = terms.Head(hv);
    // Final state: every kept key adds b v^T and b.
    for (int64_t j = 0; j < p.seq_len_k; ++j) {
      if (!p.kept[j]) continue;
      for (int64_t k = 0; k < p.d_key; ++k) {
        if (!grad_z.empty()) {
          db[(j * p.heads + h) * p.d_key + k] += grad_z[hv * p.d_key + k];
        }
        for (int64_t v = 0; v < p.d_value && !grad_S.empty(); ++v) {
          const double gs = grad_S[(hv * p.d_key + k) * p.d_value + v];
          db[(j * p.heads + h) * p.d_key + k] += gs * terms.V(j, hv, v);
          g.values[(j * p.value_heads + hv) * p.d_value + v] +=
              gs * terms.B(j, h, k);
        }
      }
    }
    for (int64_t i = 0; i < p.seq_len_q; ++i) {
      const Row row = terms.RowAt(i, hv);
      if (row.denominator == 0) continue;
      const double* go = &grad_out[(i * p.value_heads + hv) * p.d_value];
      std::vector<double> G(p.d_value);
      double e = 0;
      for (int64_t v = 0; v < p.d_value; ++v) {
        G[v] = go[v] / row.denominator;
        e -= go[v] * row.numerator[v] / (row.denominator * row.denominator);
      }
      if (p.options.denominator == Denominator::kNone) e = 0;
      double* da_i = &da[(i * p.heads + h) * p.d_key];
      for (int64_t k = 0; k < p.d_key; ++k) {
        da_i[k] += e * terms.Z(hv, k);
        g.z[hv * p.d_key + k] += e * terms.A(i, h, k);
        for (int64_t v = 0; v < p.d_value; ++v) {
          da_i[k] += G[v] * terms.S(hv, k, v);
          g.S[(hv * p.d_key + k) * p.d_value + v] += terms.A(i, h, k) * G[v];
        }
      }
      for (int64_t j = 0; j < p.seq_len_k; ++j) {
        if (!terms.Allowed(i, j)) continue;
        double dw = e;
        for (int64_t v = 0; v < p.d_value; ++v) {
          dw += G[v] * terms.V(j, hv, v);
          g.values[(j * p.value_heads + hv) * p.d_value + v] +=
              row.weights[j] * G[v];
        }
        for (int64_t k = 0; k < p.d_key; ++k) {
          da_i[k] += dw * terms.B(j, h, k);
          db[(j * p.heads + h) * p.d_key + k] += dw * terms.A(i, h, k);
        }
      }
    }
  }
  g.queries.resize(p.queries.size());
  g.keys.resize(p.keys.size());
  for (size_t n = 0; n < da.size(); ++n) {
    g.queries[n] =
        da[n] * p.options.scale * Slope(p.options.feature_map, p.queries[n]);
  }
  for (size_t n = 0; n < db.size(); ++n) {
    g.keys[n] = db[n] * Slope(p.options.feature_map, p.keys[n]);
  }
  return g;
}

}  // namespace tarn::reference
