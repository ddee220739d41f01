// HTTP/1.1 over Boost.Beast: limits, time limits, keys and streams. Handlers
// know no sockets. Included by .cc files only where they need it all; others
// take request.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "serve/http/request.h"

namespace tarn::serve {

struct ApiKey {
  std::string name, key;
};

struct HttpOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 8080;      // 0: any free one
  std::string unix_socket;   // a path: instead of address and port
  std::vector<ApiKey> keys;  // none: everyone may ask
  /// Other addresses than loopback, without keys.
  bool insecure = false;
  /// Names of this server in Host, besides loopback's and the address.
  std::vector<std::string> allowed_hosts;
  /// Origins whose pages may ask, exactly as browsers send them.
  std::vector<std::string> cors_origins;
  uint64_t max_body = uint64_t{1} << 20;
  int64_t max_connections = 256;
  double header_seconds = 10, body_seconds = 30, idle_seconds = 5;
  double write_seconds = 30;  // without progress towards a reader
  double grace_seconds = 10;  // of streams after Stop
  double ping_seconds = 15;   // between comments in an event stream that waits
  /// Told of every answered request, on the server's thread: one line, without
  /// what was asked or answered.
  std::function<void(const std::string&)> log;
};

/// Throws ArgumentError for options out of range, and for an address beyond
/// loopback without keys and without `insecure`.
void CheckHttpOptions(const HttpOptions& options);

struct HttpCounts {
  int64_t connections = 0;  // open now
  uint64_t accepted = 0, refused = 0, requests = 0, bytes_sent = 0;
};

/// Serves its routes from one thread, that of Run. Handlers run there and must
/// return at once; answers may come from any thread and at any time.
class HttpServer {
 public:
  /// Listens from here on. Throws IoError where it cannot, ArgumentError as
  /// CheckHttpOptions.
  HttpServer(HttpOptions options, std::vector<Route> routes);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;  // that it listens on; 0 for a unix socket
  /// Until Stop, and then until all connections have ended.
  void Run();
  /// No new connections, idle ones are closed, and what is being answered may
  /// end within the grace; then its clients count as gone. Thread-safe.
  void Stop();
  bool stopping() const;
  HttpCounts counts() const;  // thread-safe

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace tarn::serve
