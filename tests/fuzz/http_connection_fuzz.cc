// A whole connection of the server: the parts of the input, between NUL bytes,
// are what a client sends, one after the other.
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/file.h"
#include "fuzz/fuzz_input.h"
#include "serve/http/connection.h"

namespace tarn::fuzz {
namespace {

using namespace serve;
namespace asio = boost::asio;

std::vector<Route> Routes() {
  const auto echo = [](const Request& request, const PathArguments& arguments,
                       Response response) {
    const auto id = arguments.find("id");
    response.Send(200, "text/plain",
                  id == arguments.end() ? request.body : id->second);
  };
  const auto stream = [](const Request& request, const PathArguments&,
                         Response response) {
    response.Begin(200, "text/event-stream");
    response.Write("data: " + request.query + "\n\n");
    response.Write(request.body);
    response.End();
  };
  return {{"GET", "/health", echo, /*is_public=*/true},
          {"GET", "/items/{id}", echo},
          {"POST", "/echo", echo},
          {"POST", "/any", echo, /*is_public=*/false, /*any_type=*/true},
          {"POST", "/stream", stream}};
}

// The server's side of a pair of sockets, on the thread of the target.
class Server {
 public:
  Server() {
    int ends[2];
    Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0,
            "no pair of sockets");
    client_ = FileDescriptor(ends[1]);
    state_->options.keys = {{"some", "secret-key"}};
    state_->options.cors_origins = {"https://example.org"};
    state_->options.max_body = 4096;
    state_->options.log = [this](const std::string& line) {
      Require(line.find_first_of("\r\n") == line.npos, "a log of two lines");
      ++logged_;
    };
    state_->routes = Routes();
    state_->connections = 1;
    asio::generic::stream_protocol::socket socket(
        context_, asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
    connection_ =
        std::make_shared<Connection>(state_, Stream(std::move(socket)));
    asio::co_spawn(context_, connection_->Run(), asio::detached);
  }

  void Send(std::string_view bytes) {
    while (!bytes.empty() && !closed_) {
      const ssize_t sent = ::send(client_.get(), bytes.data(), bytes.size(),
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) closed_ = true;
      context_.poll();
      Drain();
    }
  }
  // The client sends nothing more; everything that it is told.
  std::string Finish() {
    ::shutdown(client_.get(), SHUT_WR);
    for (int waits = 0; !context_.stopped(); ++waits) {
      Require(waits < 500, "a connection outlives its client");
      context_.run_one_for(std::chrono::milliseconds(20));
      context_.poll();
      Drain();
    }
    Drain();
    Require(state_->connections == 0, "a connection that is still counted");
    return told_;
  }
  int logged() const { return logged_; }

 private:
  void Drain() {
    char bytes[4096];
    while (true) {
      const ssize_t got =
          ::recv(client_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (got <= 0) return;
      told_.append(bytes, static_cast<size_t>(got));
    }
  }

  asio::io_context context_{1};
  std::shared_ptr<ServerState> state_ = std::make_shared<ServerState>();
  std::shared_ptr<Connection> connection_;
  FileDescriptor client_;
  bool closed_ = false;
  int logged_ = 0;
  std::string told_;
};

}  // namespace
}  // namespace tarn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tarn;
  std::string_view rest = fuzz::TextOf(data, size);
  fuzz::Server server;
  while (!rest.empty()) {
    const size_t end = rest.find('\0');
    server.Send(rest.substr(0, end));
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
  }
  const std::string told = server.Finish();
  fuzz::Require(told.empty() || told.starts_with("HTTP/1.1 "),
                "an answer without a head");
  if (told.starts_with("HTTP/1.1 2")) ++fuzz::Accepted();
  return 0;
}
