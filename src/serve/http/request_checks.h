// What a server refuses of a request before it looks for its route. Functions
// of texts alone, without sockets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/request.h"

namespace tarn::serve {

inline constexpr size_t kMaxHeadBytes = 16 << 10;
inline constexpr size_t kMaxTargetBytes = 8 << 10;
inline constexpr size_t kMaxHeaders = 64;

/// A refusal: a status and what is said about it.
struct Refusal {
  int status;
  std::string code, message;
};

/// Checks the bytes of a head, which end with an empty line, before a parser
/// sees them: line ends, folded lines, control characters, lengths, and what
/// smuggles a second request (two lengths, a length with a transfer encoding).
std::optional<Refusal> CheckHead(std::string_view head);
/// Of a head that is too long or not yet whole: 414 where it is the target
/// that is, 431 otherwise.
Refusal TooLongHead(std::string_view begin);

/// The path of a target, percent-decoded once; nothing for one that is not a
/// path, has NUL, a slash that was encoded, or a segment "..".
std::optional<std::string> PathOfTarget(std::string_view target);

/// Whether a Host names this server: loopback, or one of the list, with or
/// without a port. "*" in the list: any.
bool IsOwnHost(std::string_view host, const std::vector<std::string>& allowed);
/// Whether pages of an origin may ask: the server's own, or one of the list.
bool IsOwnOrigin(std::string_view origin, std::string_view host,
                 const std::vector<std::string>& allowed);

/// 1 to 128 letters, digits, and . _ -
bool IsRequestId(std::string_view id);
std::string RandomRequestId();

/// Compares without telling by its time where they differ.
bool SameSecret(std::string_view a, std::string_view b);

/// Matches segments of a route's path; nothing where it does not match.
std::optional<PathArguments> MatchPath(std::string_view route,
                                       std::string_view path);

/// {"error": {"message", "type", "param": null, "code"}}
std::string ErrorBody(int status, std::string_view code,
                      std::string_view message);

}  // namespace tarn::serve
