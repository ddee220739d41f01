#include "serve/http/http_server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <list>
#include <optional>
#include <utility>

#include "core/text.h"
#include "serve/http/connection.h"
#include "serve/http/exchange.h"
#include "serve/http/request_checks.h"

namespace tarn::serve {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Local = asio::local::stream_protocol;

bool IsLoopback(const std::string& address) {
  error_code error;
  const auto parsed = asio::ip::make_address(address, error);
  return !error && parsed.is_loopback();
}

}  // namespace

void CheckHttpOptions(const HttpOptions& options) {
  const auto seconds = [](const char* name, double value) {
    if (value > 0 && value <= 86400) return;
    throw ArgumentError(name, "seconds in (0, 86400]", StrCat(value));
  };
  seconds("header_seconds", options.header_seconds);
  seconds("body_seconds", options.body_seconds);
  seconds("idle_seconds", options.idle_seconds);
  seconds("write_seconds", options.write_seconds);
  seconds("grace_seconds", options.grace_seconds);
  seconds("ping_seconds", options.ping_seconds);
  if (options.max_connections < 1 || options.max_connections > 65536) {
    throw ArgumentError("max_connections", "1 to 65536",
                        StrCat(options.max_connections));
  }
  if (options.max_body < 1 || options.max_body > (uint64_t{64} << 20)) {
    throw ArgumentError("max_body", "1 byte to 64 MiB",
                        StrCat(options.max_body));
  }
  for (const ApiKey& key : options.keys) {
    if (key.key.size() >= 8) continue;
    throw ArgumentError("keys", "keys of 8 bytes or more",
                        StrCat("one of ", key.key.size()));
  }
  if (!options.unix_socket.empty()) return;
  error_code error;
  asio::ip::make_address(options.address, error);
  if (error) {
    throw ArgumentError("address", "an IP address", Quoted(options.address));
  }
  if (!IsLoopback(options.address) && options.keys.empty() &&
      !options.insecure) {
    throw ArgumentError("address",
                        "a loopback address, or API keys for any other",
                        StrCat(Quoted(options.address), " without keys"));
  }
}

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  Impl(HttpOptions options, std::vector<Route> routes)
      : state(std::make_shared<ServerState>()), grace(context), news(context) {
    state->options = std::move(options);
    state->routes = std::move(routes);
  }

  // Throws IoError.
  template <typename Protocol>
  void Listen(asio::basic_socket_acceptor<Protocol>& acceptor,
              const typename Protocol::endpoint& endpoint,
              const std::string& name) {
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error && std::is_same_v<Protocol, tcp>) {
      acceptor.set_option(asio::socket_base::reuse_address(true), error);
    }
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(128, error);
    if (error) throw IoError(name, "an address to listen on", error.message());
  }

  // A socket whose owner has died is in the way; one in use is not touched.
  void FreeUnixSocket(const std::string& path) {
    struct stat status = {};
    if (::lstat(path.c_str(), &status) != 0) return;
    if (!S_ISSOCK(status.st_mode)) {
      throw IoError(path, "a path for a socket", "another file");
    }
    Local::socket probe(context);
    error_code error;
    probe.connect(Local::endpoint(path), error);
    if (!error) throw IoError(path, "a free socket", "one in use");
    ::unlink(path.c_str());
  }

  void Open() {
    const HttpOptions& options = state->options;
    if (!options.unix_socket.empty()) {
      if (options.unix_socket.size() > 100) {
        throw ArgumentError("unix_socket", "a path of at most 100 bytes",
                            StrCat(options.unix_socket.size()));
      }
      FreeUnixSocket(options.unix_socket);
      local.emplace(context);
      const mode_t before = ::umask(0177);  // its owner alone
      try {
        Listen(*local, Local::endpoint(options.unix_socket),
               options.unix_socket);
      } catch (...) {
        ::umask(before);
        throw;
      }
      ::umask(before);
      return;
    }
    const tcp::endpoint endpoint(asio::ip::make_address(options.address),
                                 options.port);
    ip.emplace(context);
    Listen(*ip, endpoint, StrCat(options.address, ":", options.port));
    port = ip->local_endpoint().port();
  }

  template <typename Acceptor>
  asio::awaitable<void> Accept(Acceptor& acceptor) {
    const auto self = shared_from_this();
    while (!state->stopping) {
      error_code error;
      auto socket = co_await acceptor.async_accept(
          asio::redirect_error(asio::use_awaitable, error));
      if (error == asio::error::operation_aborted) break;
      if (error) {
        // Out of descriptors, most likely: those in use will be given back.
        asio::steady_timer pause(context, std::chrono::milliseconds(50));
        co_await pause.async_wait(
            asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      if constexpr (std::is_same_v<Acceptor, tcp::acceptor>) {
        socket.set_option(tcp::no_delay(true), error);
      }
      Take(asio::generic::stream_protocol::socket(std::move(socket)));
    }
  }

  void Take(asio::generic::stream_protocol::socket socket) {
    ++state->accepted;
    if (state->connections >= state->options.max_connections) {
      ++state->refused;
      const std::string body =
          ErrorBody(429, "too_many_connections", "too many connections");
      const std::string text = StrCat(
          "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json"
          "\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: ",
          body.size(), "\r\n\r\n", body);
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(text), ignored);
      return;
    }
    ++state->connections;
    auto connection =
        std::make_shared<Connection>(state, Stream(std::move(socket)));
    connections.push_back(connection);
    asio::co_spawn(context, connection->Run(), asio::detached);
    connections.remove_if([](const auto& weak) { return weak.expired(); });
  }

  // Wakes the connections whose answers have news, until the server ends.
  asio::awaitable<void> WakeConnections() {
    const auto self = shared_from_this();
    error_code error;
    while (!error) {
      co_await news.async_wait(
          asio::posix::stream_descriptor::wait_read,
          asio::redirect_error(asio::use_awaitable, error));
      for (const auto& exchange : state->news->Take()) exchange->Wake();
    }
  }

  void Stop() {
    if (state->stopping.exchange(true)) return;
    error_code ignored;
    if (ip) ip->close(ignored);
    if (local) {
      local->close(ignored);
      ::unlink(state->options.unix_socket.c_str());
    }
    for (const auto& weak : connections) {
      if (const auto connection = weak.lock()) connection->Stop();
    }
    grace.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(state->options.grace_seconds)));
    grace.async_wait([self = shared_from_this()](error_code) {
      for (const auto& weak : self->connections) {
        if (const auto connection = weak.lock()) connection->Abort();
      }
    });
    CheckEnd();
  }

  // Stops waiting for the grace once no connection is left.
  void CheckEnd() {
    if (state->connections == 0) {
      grace.cancel();
      news.cancel();
      return;
    }
    auto timer = std::make_shared<asio::steady_timer>(
        context, std::chrono::milliseconds(5));
    timer->async_wait(
        [self = shared_from_this(), timer](error_code) { self->CheckEnd(); });
  }

  std::shared_ptr<ServerState> state;
  asio::io_context context{1};
  asio::steady_timer grace;
  asio::posix::stream_descriptor news;  // that of the state's queue
  std::optional<tcp::acceptor> ip;
  std::optional<Local::acceptor> local;
  std::list<std::weak_ptr<Connection>> connections;
  uint16_t port = 0;
};

HttpServer::HttpServer(HttpOptions options, std::vector<Route> routes) {
  CheckHttpOptions(options);
  std::signal(SIGPIPE, SIG_IGN);
  impl_ = std::make_shared<Impl>(std::move(options), std::move(routes));
  impl_->Open();
  const int news = ::dup(impl_->state->news->descriptor());
  if (news < 0) throw IoError("pipe", "a descriptor", std::strerror(errno));
  impl_->news.assign(news);
}

HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const { return impl_->port; }

void HttpServer::Run() {
  asio::co_spawn(impl_->context, impl_->WakeConnections(), asio::detached);
  if (impl_->ip) {
    asio::co_spawn(impl_->context, impl_->Accept(*impl_->ip), asio::detached);
  }
  if (impl_->local) {
    asio::co_spawn(impl_->context, impl_->Accept(*impl_->local),
                   asio::detached);
  }
  impl_->context.run();
}

void HttpServer::Stop() {
  asio::post(impl_->context, [impl = impl_] { impl->Stop(); });
}

bool HttpServer::stopping() const { return impl_->state->stopping; }

HttpCounts HttpServer::counts() const {
  const ServerState& state = *impl_->state;
  return {state.connections, state.accepted, state.refused, state.requests,
          state.bytes_sent};
}

}  // namespace tarn::serve
