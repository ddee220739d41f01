// How long calls of a model take, for results and the lengths of drafts.
#pragma once

#include <chrono>

namespace tarn {

inline double MillisecondsSince(std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  return elapsed.count();
}

}  // namespace tarn
