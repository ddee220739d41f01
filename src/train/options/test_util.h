// Options in words, as tests write them, and what a refusal says.
#pragma once

#include <string>

#include "core/error.h"
#include "core/test_util.h"
#include "train/options/options.h"

namespace tarn::train {

// The message of the ArgumentError that `call` throws; empty: it throws none.
template <typename F>
std::string Refusal(F call) {
  try {
    call();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "";
}

inline const Given kBase = {{"data", "/x"}, {"out", "/o"}};

inline Given With(Given more) {
  more.insert(more.begin(), kBase.begin(), kBase.end());
  return more;
}

}  // namespace tarn::train
