// A request and its answer, as handlers see them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tarn::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;
using PathArguments = std::map<std::string, std::string>;

struct Request {
  std::string method, path;  // decoded once
  std::string query;         // as sent
  Headers headers;           // names in lower case
  std::string body;
  std::string id;  // X-Request-Id: the client's if it is valid, or a random one
  std::string key;  // the name of the client's key; "" where there are no keys

  /// "" where there is none; the first of several. `name` in lower case.
  std::string_view Header(std::string_view name) const;
};

class Exchange;

/// One answer: whole, or as a stream. A handle that can be copied, is
/// thread-safe, and may outlive the connection. An answer that is never given
/// keeps its client waiting; a second one is ignored.
class Response {
 public:
  explicit Response(std::shared_ptr<Exchange> exchange);

  void Send(int status, std::string content_type, std::string body,
            Headers headers = {});
  void Begin(int status, std::string content_type, Headers headers = {});
  /// False once the client is gone.
  bool Write(std::string chunk);
  void End();
  bool gone() const;
  /// Called on the server's thread when the client goes away before the end of
  /// its answer; at once where it has.
  void OnGone(std::function<void()> function);
  /// Bytes that wait to be sent.
  size_t unsent() const;

 private:
  std::shared_ptr<Exchange> exchange_;
};

using Handler =
    std::function<void(const Request&, const PathArguments&, Response)>;

struct Route {
  std::string method;  // of GET, HEAD is answered too
  std::string path;    // segments; {name} stands for any one
  Handler handler;
  bool is_public = false;  // without a key
  /// Takes documents of other types than JSON, or none.
  bool any_type = false;
};

}  // namespace tarn::serve
