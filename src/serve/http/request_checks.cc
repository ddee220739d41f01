#include "serve/http/request_checks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"

namespace tarn::serve {
namespace {

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

Refusal Bad(std::string message) {
  return {400, "bad_request", std::move(message)};
}

std::string_view WithoutPort(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == host.npos ? host : host.substr(0, end + 1);
  }
  return host.substr(0, host.find(':'));
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool IsUnreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

}  // namespace

std::optional<Refusal> CheckHead(std::string_view head) {
  const size_t first = head.find("\r\n");
  if (first == head.npos) return Bad("no line end after the request line");
  const std::string_view line = head.substr(0, first);
  const size_t space = line.find(' ');
  const size_t last = line.rfind(' ');
  if (space != line.npos && last > space &&
      last - space - 1 > kMaxTargetBytes) {
    return Refusal{414, "target_too_long", "the target is too long"};
  }
  size_t fields = 0, lengths = 0, encodings = 0, hosts = 0;
  for (size_t at = 0; at < head.size();) {
    const size_t end = head.find("\r\n", at);
    if (end == head.npos) return Bad("a line without its end");
    const std::string_view field = head.substr(at, end - at);
    for (const char c : field) {
      const auto byte = static_cast<unsigned char>(c);
      if ((byte < 0x20 && c != '\t') || byte == 0x7F) {
        return Bad("a control character in the head");
      }
    }
    if (at > 0 && !field.empty()) {
      if (field[0] == ' ' || field[0] == '\t') return Bad("a folded line");
      const size_t colon = field.find(':');
      if (colon == field.npos || colon == 0) return Bad("a field without name");
      const std::string_view name = field.substr(0, colon);
      if (name.find_first_of(" \t") != name.npos) {
        return Bad("white space in a field's name");
      }
      lengths += EqualsIgnoringCase(name, "content-length");
      encodings += EqualsIgnoringCase(name, "transfer-encoding");
      hosts += EqualsIgnoringCase(name, "host");
      if (++fields > kMaxHeaders) {
        return Refusal{431, "too_many_headers", "too many header fields"};
      }
    }
    at = end + 2;
  }
  if (lengths > 1 || encodings > 1 || (lengths > 0 && encodings > 0)) {
    return Bad("more than one length of the body");
  }
  if (hosts > 1) return Bad("more than one Host");
  return std::nullopt;
}

Refusal TooLongHead(std::string_view begin) {
  const size_t line = begin.find("\r\n");
  if (line == begin.npos || line > kMaxTargetBytes) {
    return {414, "target_too_long", "the target is too long"};
  }
  return {431, "headers_too_long", "the header fields are too long"};
}

std::optional<std::string> PathOfTarget(std::string_view target) {
  const std::string_view raw = target.substr(0, target.find('?'));
  if (raw.empty() || raw[0] != '/') return std::nullopt;
  std::string path;
  for (size_t i = 0; i < raw.size(); ++i) {
    char c = raw[i];
    if (c == '%') {
      if (i + 2 >= raw.size()) return std::nullopt;
      const int high = HexValue(raw[i + 1]), low = HexValue(raw[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      if (c == '/' || c == '\\' || c == '\0') return std::nullopt;
      i += 2;
    }
    path += c;
  }
  for (size_t at = 0; at != path.npos;) {
    const size_t end = path.find('/', at + 1);
    const std::string segment =
        path.substr(at + 1, end == path.npos ? path.npos : end - at - 1);
    if (segment == ".." || segment == ".") return std::nullopt;
    at = end;
  }
  return path;
}

bool IsOwnHost(std::string_view host, const std::vector<std::string>& allowed) {
  const std::string_view name = WithoutPort(host);
  for (const char* own : {"localhost", "127.0.0.1", "[::1]"}) {
    if (EqualsIgnoringCase(name, own)) return true;
  }
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& one) {
                       return one == "*" || EqualsIgnoringCase(host, one) ||
                              EqualsIgnoringCase(name, one);
                     });
}

bool IsOwnOrigin(std::string_view origin, std::string_view host,
                 const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), origin) != allowed.end()) {
    return true;
  }
  return origin == StrCat("http://", host) ||
         origin == StrCat("https://", host);
}

bool IsRequestId(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), IsUnreserved);
}

std::string RandomRequestId() {
  std::random_device device;
  std::string id = "req_";
  for (int i = 0; i < 3; ++i) {
    const uint32_t word = device();
    for (int shift = 28; shift >= 0; shift -= 4) {
      id += "0123456789abcdef"[(word >> shift) & 15];
    }
  }
  return id;
}

bool SameSecret(std::string_view a, std::string_view b) {
  unsigned char differs = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    differs |= static_cast<unsigned char>(a[i] ^ other);
  }
  return differs == 0;
}

std::optional<PathArguments> MatchPath(std::string_view route,
                                       std::string_view path) {
  PathArguments arguments;
  while (true) {
    const size_t route_end = route.find('/', 1), path_end = path.find('/', 1);
    const std::string_view want = route.substr(0, route_end);
    const std::string_view have = path.substr(0, path_end);
    if (want.size() > 3 && want[1] == '{' && want.back() == '}') {
      if (have.size() < 2) return std::nullopt;
      arguments[std::string(want.substr(2, want.size() - 3))] =
          std::string(have.substr(1));
    } else if (want != have) {
      return std::nullopt;
    }
    if (route_end == route.npos || path_end == path.npos) {
      if (route_end != path_end) return std::nullopt;
      return arguments;
    }
    route.remove_prefix(route_end);
    path.remove_prefix(path_end);
  }
}

std::string ErrorBody(int status, std::string_view code,
                      std::string_view message) {
  const char* type = status == 401   ? "authentication_error"
                     : status == 403 ? "permission_error"
                     : status == 429 ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  const nlohmann::ordered_json body = {{"error",
                                        {{"message", message},
                                         {"type", type},
                                         {"param", nullptr},
                                         {"code", code}}}};
  return body.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tarn::serve
