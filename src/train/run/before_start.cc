#include "train/run/before_start.h"

#include <charconv>

#include "core/error.h"
#include "train/run/plan.h"

namespace tarn::train {
namespace {

constexpr int64_t kMostRanks = 1024;
constexpr double kLongestTimeout = 1e6;

template <typename T>
T Number(const char* flag, const std::string& text, T least, T most,
         const char* kind) {
  T value{};
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  // from_chars reads "nan" and "inf": the comparison refuses both.
  if (error != std::errc() || end != text.data() + text.size() ||
      !(value >= least && value <= most)) {
    throw ArgumentError(
        flag, StrCat(kind, " from ", least, " to ", static_cast<int64_t>(most)),
        "\"" + text + "\"");
  }
  return value;
}

}  // namespace

RanksWanted ReadRanks(const Given& given) {
  RanksWanted wanted;
  std::string pieces = "1";
  for (const auto& [name, value] : given) {
    if (name == "ranks") {
      wanted.ranks =
          Number<int64_t>("--ranks", value, 1, kMostRanks, "a whole number");
    } else if (name == "timeout") {
      Number<double>("--timeout", value, 1, kLongestTimeout, "a number");
    } else if (name == "backend") {
      if (value != "auto" && value != "gloo" && value != "nccl") {
        throw ArgumentError("--backend", "auto, gloo or nccl",
                            "\"" + value + "\"");
      }
    } else if (name == "sequence_parallel") {
      pieces = value;
      wanted.pieces = Number<int64_t>("--sequence-parallel", value, 1,
                                      kMostRanks, "a whole number");
    }
  }
  if (wanted.ranks % wanted.pieces == 0) return wanted;
  throw ArgumentError("--sequence-parallel",
                      wanted.ranks == 1
                          ? "1, or as many processes (--ranks)"
                          : StrCat("a divisor of the ", wanted.ranks, " ranks"),
                      pieces);
}

void CheckBeforeStart(const Given& given) {
  const RanksWanted wanted = ReadRanks(given);
  DevicesHere here;
  here.ranks = wanted.ranks;
  here.pieces = wanted.pieces;
  CheckRun(given, here);
}

}  // namespace tarn::train
