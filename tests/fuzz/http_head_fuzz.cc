// What is checked of the head of a request before it is parsed. The input: a
// text, and after a NUL byte a second one where there are two to compare.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "serve/http/request_checks.h"

namespace tarn::fuzz {
namespace {

using namespace serve;

void CheckAnswer(const Refusal& refusal) {
  Require(refusal.status >= 400 && refusal.status < 500, "another status");
  const std::string body =
      ErrorBody(refusal.status, refusal.code, refusal.message);
  Require(nlohmann::json::accept(body), "an answer that is no JSON");
}

void CheckPath(std::string_view target) {
  const std::optional<std::string> path = PathOfTarget(target);
  if (!path) return;
  ++Accepted();
  Require(path->starts_with('/'), "a path from nowhere");
  Require((*path + "/").find("/../") == path->npos, "a path upwards");
  Require(path->find('\0') == path->npos || target.find('\0') != target.npos,
          "a NUL byte in a path");
  for (const char* route : {"/", "/sessions/{id}", "/sessions/{id}/mark"}) {
    const auto arguments = MatchPath(route, *path);
    if (!arguments) continue;
    for (const auto& [name, value] : *arguments) {
      Require(!value.empty() && value.find('/') == value.npos,
              "an argument of several segments");
    }
  }
}

}  // namespace
}  // namespace tarn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tarn;
  const std::string_view all = fuzz::TextOf(data, size);
  const std::vector<std::string> parts = fuzz::Parts(all, 2);
  const std::string &one = parts[0], &two = parts[1];
  if (const auto refusal = serve::CheckHead(all)) {
    fuzz::CheckAnswer(*refusal);
  } else {
    ++fuzz::Accepted();
  }
  fuzz::CheckAnswer(serve::TooLongHead(all));
  fuzz::CheckPath(all);
  serve::IsOwnHost(one, {two});
  fuzz::Require(serve::IsOwnHost(one, {"*"}), "a host that is not any");
  serve::IsOwnOrigin(one, two, {"https://example.org"});
  fuzz::Require(serve::SameSecret(one, two) == (one == two), "another secret");
  fuzz::Require(!serve::IsRequestId(one) || one.size() <= 128, "a long id");
  fuzz::Require(nlohmann::json::accept(serve::ErrorBody(500, one, two)),
                "an answer that is no JSON");
  return 0;
}
