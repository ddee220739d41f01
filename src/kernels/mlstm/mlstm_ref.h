// The oracle of mlstm.h: one token and head at a time, in double, by
// definition. It shares nothing with the kernel.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

/// Gates of one sequence: p_i, p_f [T, H]; kept [T] or empty: all; maximum
/// [H]: m before.
struct MlstmGatesProblem {
  int64_t heads = 1;
  std::vector<double> p_i, p_f, b_i, b_f, maximum;
  double softcap = 0;
  std::vector<bool> kept;
};

struct MlstmGatesResult {
  std::vector<double> gates, factors, maxima;  // [T, H]
};

MlstmGatesResult MlstmGates(const MlstmGatesProblem& p);

/// Gradients in the place of p_i, p_f, b_i, b_f and maximum.
MlstmGatesProblem MlstmGatesBackward(const MlstmGatesProblem& p,
                                     const std::vector<double>& grad_gates,
                                     const std::vector<double>& grad_factors,
                                     const std::vector<double>& grad_maxima);

/// Quotients of rows y [rows, width + 1] and m [rows]: h [rows, width].
std::vector<double> MlstmRead(const std::vector<double>& y,
                              const std::vector<double>& maxima, int64_t width,
                              double eps);
/// Returns the gradient of y and sets that of m.
std::vector<double> MlstmReadBackward(const std::vector<double>& y,
                                      const std::vector<double>& maxima,
                                      int64_t width, double eps,
                                      const std::vector<double>& grad_h,
                                      std::vector<double>& grad_maxima);

/// One head over T tokens without a maximum, in exponentials that double holds:
/// queries, keys [T, K], values [T, V], i and log sigma(f) [T]. There is no
/// eps. State: C [K, V] and n [K], updated. Returns h [T, V].
std::vector<double> MlstmCell(const std::vector<double>& queries,
                              const std::vector<double>& keys,
                              const std::vector<double>& values,
                              const std::vector<double>& i,
                              const std::vector<double>& kept, double scale,
                              std::vector<double>& C, std::vector<double>& n);

}  // namespace tarn::reference
