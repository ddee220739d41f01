#include "kernels/mlstm/mlstm_ref.h"

#include <cmath>

namespace tarn::reference {
namespace {

double CellCap(double cap, double x) {
  return cap == 0 ? x : cap * std::tanh(x / cap);
}
double CellSlope(double cap, double x) {
  const double part = cap == 0 ? 0 : std::tanh(x / cap);
  return 1 - part * part;
}
double CellLogSigmoid(double x) {
  return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}
double CellSum(double normal, double maximum, double eps) {
  return std::fmax(std::fabs(normal), std::exp(-maximum)) + eps;
}

}  // namespace

MlstmGatesResult MlstmGates(const MlstmGatesProblem& p) {
  MlstmGatesResult out;
  std::vector<double> m = p.maximum;
  for (size_t n = 0; n < p.p_i.size(); ++n) {
    const size_t heads = static_cast<size_t>(p.heads), h = n % heads;
    if (!p.kept.empty() && !p.kept[n / heads]) {
      out.gates.push_back(0);
      out.factors.push_back(0);
      out.maxima.push_back(m[h]);
      continue;
    }
    const double i = CellCap(p.softcap, p.p_i[n] + p.b_i[h]);
    const double kept = CellLogSigmoid(CellCap(p.softcap, p.p_f[n] + p.b_f[h]));
    const double next = std::fmax(kept + m[h], i);
    out.gates.push_back(kept + m[h] - next);
    out.factors.push_back(std::exp(i - next));
    out.maxima.push_back(next);
    m[h] = next;
  }
  return out;
}

MlstmGatesProblem MlstmGatesBackward(const MlstmGatesProblem& p,
                                     const std::vector<double>& grad_gates,
                                     const std::vector<double>& grad_factors,
                                     const std::vector<double>& grad_maxima) {
  const MlstmGatesResult found = MlstmGates(p);
  const size_t heads = static_cast<size_t>(p.heads);
  MlstmGatesProblem d = p;
  d.b_i.assign(heads, 0);
  d.b_f.assign(heads, 0);
  d.maximum.assign(heads, 0);
  for (size_t n = p.p_i.size(); n-- > 0;) {
    const size_t h = n % heads;
    double& by_m = d.maximum[h];  // of m after the token, then before it
    by_m += grad_maxima[n];
    d.p_i[n] = d.p_f[n] = 0;
    if (!p.kept.empty() && !p.kept[n / heads]) continue;
    const double i = p.p_i[n] + p.b_i[h], f = p.p_f[n] + p.b_f[h];
    const double before = n < heads ? p.maximum[h] : found.maxima[n - heads];
    const double by_w = grad_factors[n] * found.factors[n];
    by_m -= grad_gates[n] + by_w;
    double by_i = by_w, by_kept = grad_gates[n];
    if (CellCap(p.softcap, i) >
        CellLogSigmoid(CellCap(p.softcap, f)) + before) {
      by_i += by_m;
    } else {
      by_kept += by_m;
    }
    by_m = by_kept;
    d.p_i[n] = by_i * CellSlope(p.softcap, i);
    d.p_f[n] = by_kept / (1 + std::exp(CellCap(p.softcap, f))) *
               CellSlope(p.softcap, f);
    d.b_i[h] += d.p_i[n];
    d.b_f[h] += d.p_f[n];
  }
  return d;
}

std::vector<double> MlstmRead(const std::vector<double>& y,
                              const std::vector<double>& maxima, int64_t width,
                              double eps) {
  std::vector<double> h;
  for (size_t row = 0; row < maxima.size(); ++row) {
    const double* from = y.data() + row * static_cast<size_t>(width + 1);
    for (int64_t c = 0; c < width; ++c) {
      h.push_back(from[c] / CellSum(from[width], maxima[row], eps));
    }
  }
  return h;
}

std::vector<double> MlstmReadBackward(const std::vector<double>& y,
                                      const std::vector<double>& maxima,
                                      int64_t width, double eps,
                                      const std::vector<double>& grad_h,
                                      std::vector<double>& grad_maxima) {
  std::vector<double> d;
  grad_maxima.clear();
  for (size_t row = 0; row < maxima.size(); ++row) {
    const double* from = y.data() + row * static_cast<size_t>(width + 1);
    const double* flow = grad_h.data() + row * static_cast<size_t>(width);
    const double sum = CellSum(from[width], maxima[row], eps);
    double by_sum = 0;
    for (int64_t c = 0; c < width; ++c) {
      d.push_back(flow[c] / sum);
      by_sum -= flow[c] * from[c] / (sum * sum);
    }
    const bool normalised = std::fabs(from[width]) >= std::exp(-maxima[row]);
    d.push_back(!normalised ? 0 : from[width] < 0 ? -by_sum : by_sum);
    grad_maxima.push_back(normalised ? 0 : -by_sum * std::exp(-maxima[row]));
  }
  return d;
}

std::vector<double> MlstmCell(const std::vector<double>& queries,
                              const std::vector<double>& keys,
                              const std::vector<double>& values,
                              const std::vector<double>& i,
                              const std::vector<double>& kept, double scale,
                              std::vector<double>& C, std::vector<double>& n) {
  const size_t d_key = n.size(), d_value = C.size() / n.size();
  std::vector<double> out;
  for (size_t t = 0; t < i.size(); ++t) {
    double normal = 0;
    for (size_t k = 0; k < d_key; ++k) {
      const double key = std::exp(i[t]) * keys[t * d_key + k];
      n[k] = std::exp(kept[t]) * n[k] + key;
      normal += scale * n[k] * queries[t * d_key + k];
      for (size_t v = 0; v < d_value; ++v) {
        C[k * d_value + v] = std::exp(kept[t]) * C[k * d_value + v] +
                             key * values[t * d_value + v];
      }
    }
    for (size_t v = 0; v < d_value; ++v) {
      double sum = 0;
      for (size_t k = 0; k < d_key; ++k) {
        sum += scale * C[k * d_value + v] * queries[t * d_key + k];
      }
      out.push_back(sum / std::fmax(std::fabs(normal), 1));
    }
  }
  return out;
}

}  // namespace tarn::reference
