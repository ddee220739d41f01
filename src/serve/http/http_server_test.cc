// The contract of the server, with sockets of the test as clients.
#include "serve/http/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/test_util.h"

namespace tarn::serve {
namespace {

using tarn::TemporaryFolder;

class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address),
                           sizeof(address)) == 0;
  }
  ~Client() { Close(); }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool connected() const { return connected_; }
  void Send(const std::string& text) const {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t n =
          ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }
  // Reads up to the end of one answer with a length or in chunks.
  std::string Answer(bool head_only = false) {
    while (buffer_.find("\r\n\r\n") == std::string::npos) {
      if (!More()) return Take(buffer_.size());
    }
    const size_t head = buffer_.find("\r\n\r\n") + 4;
    const std::string text = buffer_.substr(0, head);
    if (head_only || text.find("204 No") != text.npos ||
        text.find("100 Continue") != text.npos) {
      return Take(head);
    }
    if (text.find("chunked") != text.npos) {
      while (buffer_.find("\r\n0\r\n\r\n", head - 2) == std::string::npos) {
        if (!More()) return Take(buffer_.size());
      }
      return Take(buffer_.find("\r\n0\r\n\r\n", head - 2) + 7);
    }
    const size_t at = text.find("Content-Length: ");
    if (at == text.npos) return All();
    const size_t length = std::stoul(text.substr(at + 16));
    while (buffer_.size() < head + length) {
      if (!More()) return Take(buffer_.size());
    }
    return Take(head + length);
  }
  // Up to the end of the connection.
  std::string All() {
    while (More()) {
    }
    return Take(buffer_.size());
  }
  // Up to and with this text.
  std::string Until(const std::string& text) {
    while (buffer_.find(text) == std::string::npos) {
      if (!More()) return Take(buffer_.size());
    }
    return Take(buffer_.find(text) + text.size());
  }

 private:
  bool More() {
    char bytes[4096];
    const ssize_t n = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (n <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  std::string Take(size_t count) {
    std::string taken = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return taken;
  }
  int fd_;
  bool connected_ = false;
  std::string buffer_;
};

std::string Get(const std::string& path, const std::string& fields = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n";
}
std::string Post(const std::string& path, const std::string& body,
                 const std::string& fields = "") {
  return "POST " + path +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n" + fields + "\r\n" + body;
}

// Short limits, so that a test that waits for one does not wait long; no test
// needs the server to be quick.
HttpOptions Quick() {
  HttpOptions options;
  options.port = 0;
  options.max_body = 1000;
  options.grace_seconds = 30;
  options.idle_seconds = 600;
  options.header_seconds = 600;
  options.body_seconds = 600;
  options.write_seconds = 600;
  return options;
}

class HttpServerTest : public ::testing::Test {
 protected:
  ~HttpServerTest() override { Stop(); }

  void Start(HttpOptions options) {
    const auto echo = [](const Request& request, const PathArguments& arguments,
                         Response response) {
      std::string text = request.method + " " + request.path + " [" +
                         request.query + "] " + request.key + " " +
                         request.body;
      for (const auto& [key, value] : arguments)
        text += " " + key + "=" + value;
      response.Send(200, "text/plain", text);
    };
    const auto stream = [this](const Request&, const PathArguments&,
                               Response response) {
      response.Begin(200, "text/event-stream");
      response.Write("data: one\n\n");
      response.OnGone([this] { gone_.set_value(); });
      held_.emplace(response);
      opened_.set_value();
    };
    const auto fails = [](const Request&, const PathArguments&, Response) {
      throw std::runtime_error("no");
    };
    const auto large = [](const Request&, const PathArguments&,
                          Response response) {
      response.Send(200, "text/plain", std::string(3 << 20, 'x'));
    };
    server_ = std::make_unique<HttpServer>(
        std::move(options),
        std::vector<Route>{{"GET", "/echo", echo},
                           {"POST", "/echo", echo},
                           {"DELETE", "/item/{id}", echo},
                           {"GET", "/open", echo, /*is_public=*/true},
                           {"GET", "/stream", stream},
                           {"GET", "/fails", fails},
                           {"GET", "/large", large}});
    thread_ = std::thread([this] { server_->Run(); });
  }
  void Stop() {
    if (!thread_.joinable()) return;
    if (held_) held_->End();
    server_->Stop();
    thread_.join();
  }
  std::string Ask(const std::string& request) {
    Client client(server_->port());
    client.Send(request);
    return client.Answer();
  }
  int Status(const std::string& request) {
    const std::string answer = Ask(request);
    return answer.size() < 12 ? -1 : std::stoi(answer.substr(9, 3));
  }

  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::optional<Response> held_;
  std::promise<void> opened_, gone_;
};

TEST_F(HttpServerTest, AnswersInOrderAndKeepsTheConnection) {
  Start(Quick());
  Client client(server_->port());
  client.Send(Get("/echo?a=1") + Post("/echo", "{}") + Get("/none"));
  EXPECT_NE(std::string::npos, client.Answer().find("GET /echo [a=1]"));
  EXPECT_NE(std::string::npos, client.Answer().find("POST /echo []  {}"));
  EXPECT_NE(std::string::npos, client.Answer().find("404 Not Found"));
  client.Send("DELETE /item/a%20b HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(std::string::npos, client.Answer().find("id=a b"));
  // In pieces of one byte.
  for (const char c : Post("/echo", "{\"x\":1}")) {
    client.Send(std::string(1, c));
  }
  EXPECT_NE(std::string::npos, client.Answer().find("{\"x\":1}"));
}

TEST_F(HttpServerTest, MethodsVersionsAndExpectations) {
  Start(Quick());
  Client client(server_->port());
  client.Send("HEAD /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(std::string::npos, client.Answer(true).find("200 OK"));
  client.Send("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(std::string::npos,
            client.Answer().find("Allow: OPTIONS, GET, HEAD, POST"));
  client.Send("PUT /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string refused = client.Answer();
  EXPECT_NE(std::string::npos, refused.find("405 Method Not Allowed"));
  EXPECT_NE(std::string::npos, refused.find("Allow: "));
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nContent-Length: 2\r\nExpect: "
      "100-continue\r\n\r\n");
  EXPECT_NE(std::string::npos, client.Answer().find("100 Continue"));
  client.Send("{}");
  EXPECT_NE(std::string::npos, client.Answer().find("200 OK"));
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
      "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n");
  EXPECT_NE(std::string::npos, client.Answer().find("[]  {}"));
  client.Send("GET /echo HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(std::string::npos, client.All().find("Connection: close"));
}

TEST_F(HttpServerTest, LimitsAreKept) {
  Start(Quick());
  EXPECT_EQ(200, Status(Post("/echo", std::string(1000, ' '))));
  EXPECT_EQ(413, Status(Post("/echo", std::string(1001, ' '))));
  // Before the rest is read: it never comes.
  Client client(server_->port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
      "99999999999\r\n\r\n");
  EXPECT_NE(std::string::npos, client.All().find("413"));
  Client chunked(server_->port());
  chunked.Send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
      "chunked\r\n\r\nfff\r\n" +
      std::string(0xfff, ' '));
  EXPECT_NE(std::string::npos, chunked.All().find("413"));
  EXPECT_EQ(414, Status(Get("/" + std::string(9000, 'a'))));
  EXPECT_EQ(414, Status("GET /" + std::string(20000, 'a')));
  EXPECT_EQ(431,
            Status(Get("/echo", "X: " + std::string(17000, 'a') + "\r\n")));
  EXPECT_EQ(415, Status("POST /echo HTTP/1.1\r\nHost: localhost\r\n"
                        "Content-Type: text/plain\r\nContent-Length: "
                        "2\r\n\r\n{}"));
  for (const char* bad :
       {"GET /echo HTTP/1.1\nHost: localhost\n\n\r\n\r\n",
        "\x16\x03\x01\r\n\r\n", "GET /echo\r\n\r\n",
        "GET  /echo HTTP/1.1\r\n\r\n", "G@T /echo HTTP/1.1\r\n\r\n",
        "GET /echo HTTP/9.9\r\n\r\n"}) {
    const int status = Status(bad);
    EXPECT_TRUE(status == 400 || status == 505) << bad << status;
  }
  for (const char* bad : {"/a/../b", "/%2e%2e/b", "/a%2fb", "/%00"}) {
    EXPECT_EQ(400, Status(Get(bad))) << bad;
  }
  for (const char* bad : {"zz\r\n", "-1\r\n", "ffffffffffffffffff\r\n"}) {
    Client one(server_->port());
    one.Send(std::string("POST /echo HTTP/1.1\r\nHost: localhost\r\n"
                         "Content-Type: application/json\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n") +
             bad);
    const std::string answer = one.All();
    EXPECT_TRUE(answer.find(" 400 ") != answer.npos ||
                answer.find(" 413 ") != answer.npos)
        << bad << answer;
  }
  EXPECT_EQ(500, Status(Get("/fails")));
  EXPECT_EQ(200, Status(Get("/echo")));  // it still serves
}

TEST_F(HttpServerTest, NothingIsSmuggled) {
  Start(Quick());
  for (const char* fields :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: +5\r\n",
        "Content-Length: 5 5\r\n", "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "X: a\r\n Content-Length: 5\r\n"}) {
    Client client(server_->port());
    client.Send(std::string("POST /echo HTTP/1.1\r\nHost: localhost\r\n") +
                fields + "\r\n0\r\n\r\n" + Get("/echo"));
    const std::string all = client.All();
    EXPECT_NE(std::string::npos, all.find(" 400 ")) << fields;
    EXPECT_EQ(std::string::npos, all.find("200 OK")) << fields;
  }
}

TEST_F(HttpServerTest, KeysHostsAndOrigins) {
  HttpOptions options = Quick();
  options.keys = {{"alice", "key-of-alice"}, {"bob", "key-of-bob"}};
  options.cors_origins = {"https://page.example"};
  Start(options);
  const std::string none = Ask(Get("/echo"));
  const std::string wrong = Ask(Get("/echo", "Authorization: Bearer x\r\n"));
  EXPECT_NE(std::string::npos, none.find(" 401 "));
  const auto body = [](const std::string& answer) {
    return answer.substr(answer.find("\r\n\r\n"));
  };
  EXPECT_EQ(body(none), body(wrong));
  EXPECT_EQ(401, Status(Get("/none")));  // what there is, is not told
  EXPECT_NE(
      std::string::npos,
      Ask(Get("/echo", "Authorization: Bearer key-of-bob\r\n")).find("bob"));
  EXPECT_EQ(200, Status(Get("/open")));
  EXPECT_EQ(403, Status("GET /open HTTP/1.1\r\nHost: evil.example\r\n\r\n"));
  EXPECT_EQ(403, Status("GET /open HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(403, Status(Get("/open", "Origin: https://evil.example\r\n")));
  const std::string cors =
      Ask(Get("/open", "Origin: https://page.example\r\n"));
  EXPECT_NE(std::string::npos,
            cors.find("Access-Control-Allow-Origin: https://page.example"));
  EXPECT_EQ(std::string::npos, cors.find("Allow-Credentials"));
}

TEST_F(HttpServerTest, IdsAreTheClientsWhereTheyAreValid) {
  Start(Quick());
  EXPECT_NE(std::string::npos, Ask(Get("/echo", "X-Request-Id: my-id\r\n"))
                                   .find("X-Request-Id: my-id\r\n"));
  EXPECT_NE(
      std::string::npos,
      Ask(Get("/echo", "X-Request-Id: a b\r\n")).find("X-Request-Id: req_"));
}

TEST_F(HttpServerTest, StreamsArriveAsTheyAreWritten) {
  Start(Quick());
  Client client(server_->port());
  client.Send(Get("/stream"));
  EXPECT_NE(std::string::npos, client.Until("data: one\n\n").find("chunked"));
  held_->Write("data: two\n\n");
  EXPECT_NE(std::string::npos, client.Until("data: two\n\n").find("two"));
  held_->End();
  client.Until("0\r\n\r\n");
  EXPECT_FALSE(held_->Write("more"));
  client.Send(Get("/echo"));  // the connection stays
  EXPECT_NE(std::string::npos, client.Answer().find("200 OK"));
}

TEST_F(HttpServerTest, AStreamThatWaitsIsKeptAlive) {
  HttpOptions options = Quick();
  options.ping_seconds = 0.02;
  Start(options);
  Client client(server_->port());
  client.Send(Get("/stream"));
  client.Until("data: one\n\n");
  EXPECT_NE(std::string::npos, client.Until(": ping\n\n").find(": ping"));
  held_->Write("data: two\n\n");
  EXPECT_NE(std::string::npos, client.Until("data: two\n\n").find("two"));
}

TEST_F(HttpServerTest, AClientThatGoesAwayIsNoticedWithoutAWrite) {
  Start(Quick());
  Client client(server_->port());
  client.Send(Get("/stream"));
  client.Until("data: one\n\n");
  client.Close();
  gone_.get_future().wait();
  EXPECT_TRUE(held_->gone());
  EXPECT_FALSE(held_->Write("x"));
}

TEST_F(HttpServerTest, LargeAnswersToSlowReaders) {
  Start(Quick());
  Client client(server_->port());
  client.Send(Get("/large") + Get("/echo"));
  EXPECT_GT(client.Answer().size(), size_t{3} << 20);
  EXPECT_NE(std::string::npos, client.Answer().find("200 OK"));
  // One that reads nothing is given up.
  Stop();
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreToldAtOnce) {
  HttpOptions options = Quick();
  options.max_connections = 2;
  Start(options);
  Client one(server_->port()), two(server_->port());
  one.Send(Get("/echo"));
  one.Answer();
  two.Send(Get("/echo"));
  two.Answer();
  Client three(server_->port());
  const std::string told = three.All();
  EXPECT_NE(std::string::npos, told.find(" 429 "));
  EXPECT_NE(std::string::npos, told.find("Retry-After"));
  EXPECT_EQ(1u, server_->counts().refused);
}

TEST_F(HttpServerTest, TimeLimitsEndWhatDoesNotCome) {
  HttpOptions options = Quick();
  options.idle_seconds = 0.05;
  options.header_seconds = 0.05;
  options.body_seconds = 0.05;
  Start(options);
  Client idle(server_->port());
  EXPECT_EQ("", idle.All());
  Client head(server_->port());
  head.Send("GET /echo HT");
  EXPECT_NE(std::string::npos, head.All().find(" 408 "));
  Client body(server_->port());
  body.Send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\na");
  EXPECT_NE(std::string::npos, body.All().find(" 408 "));
}

TEST_F(HttpServerTest, StopsGracefullyAndThenForGood) {
  Start(Quick());
  Client idle(server_->port()), busy(server_->port());
  idle.Send(Get("/echo"));
  idle.Answer();
  busy.Send(Get("/stream"));
  busy.Until("data: one\n\n");
  server_->Stop();
  EXPECT_EQ("", idle.All());  // closed
  held_->Write("data: last\n\n");
  held_->End();
  EXPECT_NE(std::string::npos, busy.All().find("data: last"));
  thread_.join();
  EXPECT_FALSE(Client(server_->port()).connected());
}

TEST_F(HttpServerTest, TheGraceEnds) {
  HttpOptions options = Quick();
  options.grace_seconds = 0.05;
  Start(options);
  Client busy(server_->port());
  busy.Send(Get("/stream"));
  busy.Until("data: one\n\n");
  server_->Stop();
  gone_.get_future().wait();
  thread_.join();
  EXPECT_TRUE(held_->gone());
}

TEST_F(HttpServerTest, UnixSockets) {
  TemporaryFolder folder;
  const std::string path = folder / "socket";
  HttpOptions options = Quick();
  options.unix_socket = path;
  Start(options);
  const auto connect = [&] {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(0, ::connect(fd, reinterpret_cast<sockaddr*>(&address),
                           sizeof(address)));
    return fd;
  };
  const int fd = connect();
  const std::string request = "GET /echo HTTP/1.1\r\nConnection: close\r\n\r\n";
  ::send(fd, request.data(), request.size(), 0);
  char bytes[4096];
  const ssize_t got = ::recv(fd, bytes, sizeof(bytes), 0);
  EXPECT_NE(std::string::npos,
            std::string(bytes, static_cast<size_t>(std::max<ssize_t>(got, 0)))
                .find("200 OK"));
  ::close(fd);
  EXPECT_THROW(HttpServer(options, {}), IoError);  // in use
  Stop();
  EXPECT_NE(0, ::access(path.c_str(), F_OK));
  // A stale one is replaced, another file is not.
  const int stale = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ::bind(stale, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  ::close(stale);
  { HttpServer again(options, {}); }
  ::unlink(path.c_str());
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fclose(file);
  EXPECT_THROW(HttpServer(options, {}), IoError);
}

TEST(HttpOptionsTest, OtherAddressesNeedKeys) {
  HttpOptions options;
  options.address = "0.0.0.0";
  EXPECT_THROW(CheckHttpOptions(options), ArgumentError);
  options.keys = {{"a", "long enough"}};
  CheckHttpOptions(options);
  options.keys.clear();
  options.insecure = true;
  CheckHttpOptions(options);
  options.keys = {{"a", "short"}};
  EXPECT_THROW(CheckHttpOptions(options), ArgumentError);
  for (const char* address : {"", "localhost", "1.2.3"}) {
    HttpOptions other;
    other.address = address;
    EXPECT_THROW(CheckHttpOptions(other), ArgumentError) << address;
  }
  HttpOptions zero;
  zero.max_connections = 0;
  EXPECT_THROW(CheckHttpOptions(zero), ArgumentError);
}

}  // namespace
}  // namespace tarn::serve
