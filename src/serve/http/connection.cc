#include "serve/http/connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "serve/http/exchange.h"
#include "serve/http/request_checks.h"

namespace tarn::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::awaitable;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 16 << 10;
// The most that is given to the system at once: progress is seen between.
constexpr size_t kWriteBytes = 64 << 10;

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds));
}

auto Into(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string Chunk(const std::string& body) {
  char size[24];
  std::snprintf(size, sizeof(size), "%zx\r\n", body.size());
  return size + body + "\r\n";
}

// Whether a connection on which there is something to read has ended.
bool PeerClosed(int socket) {
  char byte;
  const ssize_t got = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

}  // namespace

struct Connection::Read {
  Request request;
  std::string target;
  unsigned version = 11;
  bool keep_alive = true, head_only = false;
  Clock::time_point begun = Clock::now();
  std::optional<Refusal> refusal;  // found while it was read
};

struct Connection::Peer {
  bool watched = true;
};

Connection::Connection(std::shared_ptr<ServerState> state, Stream stream)
    : state_(std::move(state)),
      stream_(std::move(stream)),
      deadline_(stream_.get_executor()) {}

awaitable<void> Connection::Run() {
  const auto self = shared_from_this();
  while (keep_ && !state_->stopping) {
    Read read;
    const bool whole = co_await ReadRequest(read);
    deadline_.cancel();
    if (!whole) break;
    idle_ = false;
    ++state_->requests;
    const bool next = co_await Answer(read);
    idle_ = true;
    if (!next) break;
  }
  error_code ignored;
  stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
  stream_.close();
  deadline_.cancel();
  --state_->connections;
}

void Connection::Stop() {
  keep_ = false;
  if (idle_) stream_.cancel();
}

void Connection::Abort() {
  keep_ = false;
  if (exchange_ != nullptr) {
    exchange_->SetGone();
    exchange_->wake.cancel();
  }
  stream_.close();
}

// Ends a read that lasts longer. The stream's own limit would close it, and the
// client could not be told.
void Connection::ReadWithin(double seconds) {
  late_ = false;
  deadline_.expires_after(Seconds(seconds));
  deadline_.async_wait([self = shared_from_this()](error_code error) {
    if (error || self->deadline_.expiry() > Clock::now()) return;
    self->late_ = true;
    error_code ignored;
    self->stream_.socket().cancel(ignored);
  });
}

// Reads one request; false: the connection ends without an answer. What is
// wrong with it is left in read.refusal.
awaitable<bool> Connection::ReadRequest(Read& read) {
  error_code error;
  size_t end = buffer_.find("\r\n\r\n");
  bool first = true;
  const HttpOptions& options = state_->options;
  stream_.expires_never();
  ReadWithin(buffer_.empty() ? options.idle_seconds : options.header_seconds);
  while (end == buffer_.npos) {
    if (buffer_.size() >= kMaxHeadBytes) {
      read.refusal = TooLongHead(buffer_);
      co_return true;
    }
    const size_t had = buffer_.size();
    buffer_.resize(had + kReadBytes);
    const size_t got = co_await stream_.async_read_some(
        asio::buffer(buffer_.data() + had, kReadBytes), Into(error));
    buffer_.resize(had + got);
    if (error) {
      if (late_ && !buffer_.empty()) {
        read.refusal = Refusal{408, "timeout", "the head took too long"};
        co_return true;
      }
      co_return false;
    }
    // Empty lines before a request are not part of it.
    if (first) {
      while (buffer_.starts_with("\r\n")) buffer_.erase(0, 2);
      if (!buffer_.empty()) {
        ReadWithin(options.header_seconds);
        first = false;
      }
    }
    end = buffer_.find("\r\n\r\n", had < 3 ? 0 : had - 3);
  }
  read.begun = Clock::now();
  const std::string_view head = std::string_view(buffer_).substr(0, end + 2);
  if (end + 4 > kMaxHeadBytes) {
    read.refusal = TooLongHead(head);
    co_return true;
  }
  read.refusal = CheckHead(head);
  if (read.refusal) co_return true;

  http::request_parser<http::string_body> parser;
  parser.header_limit(2 * kMaxHeadBytes);
  parser.body_limit(options.max_body);
  parser.eager(true);
  const size_t used = parser.put(
      asio::buffer(std::string_view(buffer_).substr(0, end + 4)), error);
  buffer_.erase(0, used);
  const auto& message = parser.get();
  const bool parsed = !error || error == http::error::need_more;
  if (!parsed || !parser.is_header_done()) {
    const bool large = error == http::error::body_limit;
    read.refusal = large
                       ? Refusal{413, "body_too_large", "the body is too large"}
                       : Refusal{400, "bad_request", "not an HTTP/1.1 request"};
    co_return true;
  }
  Request& request = read.request;
  request.method = std::string(message.method_string());
  read.target = std::string(message.target());
  read.version = message.version();
  read.keep_alive = message.keep_alive();
  read.head_only = request.method == "HEAD";
  for (const auto& field : message) {
    request.headers.emplace_back(Lower(field.name_string()),
                                 std::string(field.value()));
  }
  const std::string_view id = request.Header("x-request-id");
  request.id = IsRequestId(id) ? std::string(id) : RandomRequestId();
  if (read.version != 10 && read.version != 11) {
    read.refusal = Refusal{505, "version", "HTTP/1.0 and 1.1 are spoken here"};
    co_return true;
  }
  const auto encoding = Lower(request.Header("transfer-encoding"));
  if (!encoding.empty() && encoding != "chunked") {
    read.refusal = Refusal{400, "bad_request", "an unknown transfer encoding"};
    co_return true;
  }
  if (const auto length = parser.content_length();
      length && *length > options.max_body) {
    read.refusal = Refusal{413, "body_too_large", "the body is too large"};
    co_return true;
  }
  if (parser.is_done()) {
    request.body = std::move(parser.get().body());
    co_return true;
  }
  if (Lower(request.Header("expect")) == "100-continue") {
    const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    const bool sent = co_await Write(go_on);
    if (!sent) co_return false;
  }
  stream_.expires_never();
  ReadWithin(options.body_seconds);
  while (!parser.is_done()) {
    if (buffer_.empty()) {
      buffer_.resize(kReadBytes);
      const size_t got =
          co_await stream_.async_read_some(asio::buffer(buffer_), Into(error));
      buffer_.resize(got);
      if (late_) {
        read.refusal = Refusal{408, "timeout", "the body took too long"};
        co_return true;
      }
      if (error) co_return false;
    }
    const size_t taken = parser.put(asio::buffer(buffer_), error);
    buffer_.erase(0, taken);
    if (error == http::error::need_more) {
      if (taken > 0) continue;
      // A part of a chunk's head: more of it must come.
      const size_t had = buffer_.size();
      if (had > kMaxHeadBytes) {
        read.refusal = Refusal{400, "bad_request", "a bad chunk"};
        co_return true;
      }
      buffer_.resize(had + kReadBytes);
      const size_t got = co_await stream_.async_read_some(
          asio::buffer(buffer_.data() + had, kReadBytes), Into(error));
      buffer_.resize(had + got);
      if (error) co_return false;
      continue;
    }
    if (error) {
      const bool large = error == http::error::body_limit;
      read.refusal =
          large ? Refusal{413, "body_too_large", "the body is too large"}
                : Refusal{400, "bad_request", "a bad body"};
      co_return true;
    }
  }
  request.body = std::move(parser.get().body());
  co_return true;
}

std::string Connection::HeadOf(const Read& read, int status,
                               const std::string& type, const Headers& headers,
                               bool stream, size_t length) const {
  std::string head = StrCat(
      "HTTP/1.1 ", status, " ",
      std::string(http::obsolete_reason(static_cast<http::status>(status))),
      "\r\nServer: tarn\r\nX-Request-Id: ", read.request.id, "\r\n");
  if (!type.empty()) head += StrCat("Content-Type: ", type, "\r\n");
  for (const auto& [name, value] : headers) {
    head += StrCat(name, ": ", value, "\r\n");
  }
  const std::string_view origin = read.request.Header("origin");
  const auto& cors = state_->options.cors_origins;
  if (std::find(cors.begin(), cors.end(), origin) != cors.end()) {
    head +=
        StrCat("Access-Control-Allow-Origin: ", origin, "\r\nVary: Origin\r\n");
  }
  if (!stream) {
    if (status != 204) head += StrCat("Content-Length: ", length, "\r\n");
  } else if (read.version == 11) {
    head += "Transfer-Encoding: chunked\r\n";
  }
  const bool closes =
      !read.keep_alive || !keep_ || (stream && read.version == 10);
  head += closes ? "Connection: close\r\n" : "Connection: keep-alive\r\n";
  return head + "X-Content-Type-Options: nosniff\r\n\r\n";
}

// Writes all of it, and gives up where its reader makes no progress.
awaitable<bool> Connection::Write(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    stream_.expires_after(Seconds(state_->options.write_seconds));
    error_code error;
    const size_t wrote = co_await stream_.async_write_some(
        asio::buffer(bytes.data() + sent,
                     std::min(kWriteBytes, bytes.size() - sent)),
        Into(error));
    if (error) co_return false;
    sent += wrote;
    state_->bytes_sent += wrote;
  }
  co_return true;
}

void Connection::Log(const Read& read, int status) const {
  if (!state_->options.log) return;
  const double ms =
      std::chrono::duration<double, std::milli>(Clock::now() - read.begun)
          .count();
  std::string path =
      read.request.path.empty() ? read.target : read.request.path;
  path.resize(std::min<size_t>(path.size(), 256));
  for (char& c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  state_->options.log(StrCat(read.request.id, " ", read.request.method, " ",
                             path, " ", status, " ", ms, " ms"));
}

// The answer to a request that no handler gets; none where one does, which
// `found` is then, with its arguments.
std::optional<Connection::Plain> Connection::Check(
    Read& read, const Route*& found, PathArguments& arguments) const {
  Request& request = read.request;
  const HttpOptions& options = state_->options;
  const auto refused = [](int status, const char* code, const char* text,
                          Headers headers = {}) {
    return Plain{status, ErrorBody(status, code, text), std::move(headers)};
  };
  if (read.refusal) {
    // What follows cannot be told from the body: nothing more is read.
    read.keep_alive = false;
    if (request.id.empty()) request.id = RandomRequestId();
    return refused(read.refusal->status, read.refusal->code.c_str(),
                   read.refusal->message.c_str());
  }
  const std::optional<std::string> path = PathOfTarget(read.target);
  if (!path) return refused(400, "bad_path", "not a path");
  request.path = *path;
  const size_t query = read.target.find('?');
  if (query != read.target.npos) request.query = read.target.substr(query + 1);
  const std::string host(request.Header("host"));
  const bool local = !options.unix_socket.empty();
  if (!local && !IsOwnHost(host, options.allowed_hosts)) {
    return refused(403, "host", "this Host is not served here");
  }
  const std::string_view origin = request.Header("origin");
  if (!origin.empty() && !IsOwnOrigin(origin, host, options.cors_origins)) {
    return refused(403, "origin", "this Origin may not ask");
  }
  std::string allow = "OPTIONS";
  bool any = false;
  for (const Route& route : state_->routes) {
    const auto matched = MatchPath(route.path, request.path);
    if (!matched) continue;
    any = true;
    allow += ", " + route.method + (route.method == "GET" ? ", HEAD" : "");
    const bool same = route.method == request.method ||
                      (route.method == "GET" && read.head_only);
    if (!same || found != nullptr) continue;
    found = &route;
    arguments = *matched;
  }
  if (request.method == "OPTIONS" && any) {
    Headers headers{{"Allow", allow}};
    if (!origin.empty()) {
      headers.emplace_back("Access-Control-Allow-Methods", allow);
      headers.emplace_back("Access-Control-Allow-Headers",
                           "Authorization, Content-Type");
    }
    return Plain{204, "", std::move(headers)};
  }
  if (!options.keys.empty() && (found == nullptr || !found->is_public)) {
    const std::string given(request.Header("authorization"));
    const std::string key = given.starts_with("Bearer ")
                                ? given.substr(7)
                                : std::string(request.Header("x-api-key"));
    bool known = false;
    for (const ApiKey& one : options.keys) {
      // All are compared, whichever it is.
      const bool same = SameSecret(one.key, key);
      if (same && !known) request.key = one.name;
      known = known || same;
    }
    if (!known) {
      return refused(401, "invalid_api_key", "a valid key is needed",
                     {{"WWW-Authenticate", "Bearer"}});
    }
  }
  if (!any) return refused(404, "not_found", "there is no such path");
  if (found == nullptr) {
    return refused(405, "method", "not with this method", {{"Allow", allow}});
  }
  if (!request.body.empty() && !found->any_type) {
    const std::string type = Lower(request.Header("content-type"));
    if (type != "application/json" && !type.starts_with("application/json;")) {
      return refused(415, "content_type", "Content-Type: application/json");
    }
  }
  return std::nullopt;
}

// Calls the handler of a request.
std::shared_ptr<Exchange> Connection::Begin(const Read& read,
                                            const Route& route,
                                            const PathArguments& arguments) {
  auto exchange =
      std::make_shared<Exchange>(stream_.get_executor(), state_->news);
  try {
    route.handler(read.request, arguments, Response(exchange));
  } catch (const std::exception&) {
    exchange->Send(500, "application/json",
                   ErrorBody(500, "internal_error", "the handler failed"), {});
  }
  return exchange;
}

// The bytes of a plain answer.
std::string Connection::PlainBytes(const Read& read, const Plain& plain) const {
  const std::string type = plain.body.empty() ? "" : "application/json";
  std::string bytes =
      HeadOf(read, plain.status, type, plain.headers, false, plain.body.size());
  if (!read.head_only) bytes += plain.body;
  return bytes;
}

// False: the connection ends. No temporary lives over a co_await, here and
// below: GCC 12 destroys some of them twice.
awaitable<bool> Connection::Answer(Read& read) {
  const Route* found = nullptr;
  PathArguments arguments;
  const std::optional<Plain> plain = Check(read, found, arguments);
  if (plain) {
    Log(read, plain->status);
    const std::string bytes = PlainBytes(read, *plain);
    const bool sent = co_await Write(bytes);
    const bool next = sent && read.keep_alive && keep_;
    co_return next;
  }
  exchange_ = Begin(read, *found, arguments);
  const bool next = co_await Deliver(read);
  exchange_ = nullptr;
  co_return next;
}

// Sends an answer as it comes, while it watches whether its client is there.
awaitable<bool> Connection::Deliver(const Read& read) {
  const std::shared_ptr<Exchange> exchange = exchange_;
  const auto peer = std::make_shared<Peer>();
  stream_.expires_never();
  Watch(exchange, peer);
  bool begun = false, stream = false, pings = false, ended = false;
  bool sent = true;
  while (sent && !ended) {
    if (exchange->gone()) {
      sent = false;
      break;
    }
    if (!exchange->HasNews()) {
      error_code woken;
      exchange->wake.expires_after(Seconds(state_->options.ping_seconds));
      co_await exchange->wake.async_wait(Into(woken));
      const bool quiet = !woken && !exchange->HasNews() && !exchange->gone();
      if (!quiet || !pings || read.head_only) continue;
    }
    std::string bytes;
    if (!begun) {
      bytes = FirstBytes(read, *exchange, stream, pings, ended);
    } else if (exchange->HasNews()) {
      bytes = NextBytes(read, *exchange, ended);
    } else {
      bytes = PingBytes(read);
    }
    begun = true;
    sent = co_await Write(bytes);
  }
  peer->watched = false;
  // Ends the wait of WatchPeer, and nothing else: no read is under way.
  error_code ignored;
  stream_.socket().cancel(ignored);
  if (!sent) exchange->SetGone();
  const bool whole = sent && ended && (read.version == 11 || !stream);
  const bool next = whole && read.keep_alive && keep_;
  co_return next;
}

// The head of an answer that has begun, and the body of a whole one.
std::string Connection::FirstBytes(const Read& read, Exchange& exchange,
                                   bool& stream, bool& pings,
                                   bool& ended) const {
  const std::optional<Exchange::Head> head = exchange.TakeHead();
  std::string body;
  stream = head->stream;
  pings = stream && head->type == "text/event-stream";
  if (!stream) body = exchange.TakeBody(ended);
  exchange.Sent(body.size());
  Log(read, head->status);
  std::string bytes = HeadOf(read, head->status, head->type, head->headers,
                             stream, body.size());
  if (!read.head_only) bytes += body;
  return bytes;
}

// A comment, which readers of events ignore: the connection lives.
std::string Connection::PingBytes(const Read& read) {
  const std::string ping = ": ping\n\n";
  return read.version == 11 ? Chunk(ping) : ping;
}

// The next part of a stream.
std::string Connection::NextBytes(const Read& read, Exchange& exchange,
                                  bool& ended) const {
  std::string body = exchange.TakeBody(ended);
  exchange.Sent(body.size());
  if (read.head_only) return "";
  if (read.version != 11) return body;
  std::string bytes = body.empty() ? "" : Chunk(body);
  if (ended) bytes += "0\r\n\r\n";
  return bytes;
}

void Connection::Watch(std::shared_ptr<Exchange> exchange,
                       std::shared_ptr<Peer> peer) {
  asio::co_spawn(stream_.get_executor(), WatchPeer(exchange, peer),
                 asio::detached);
}

// A client that closes its side while it waits is gone. What it sends before
// its answer is a next request, after which nothing can be seen of the end.
awaitable<void> Connection::WatchPeer(std::shared_ptr<Exchange> exchange,
                                      std::shared_ptr<Peer> peer) {
  const auto self = shared_from_this();
  if (!buffer_.empty()) co_return;
  error_code error;
  co_await stream_.socket().async_wait(asio::socket_base::wait_read,
                                       Into(error));
  if (!peer->watched || error) co_return;
  if (!PeerClosed(stream_.socket().native_handle())) co_return;
  exchange->SetGone();
  exchange->wake.cancel();
}

}  // namespace tarn::serve
