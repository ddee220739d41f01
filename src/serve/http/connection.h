// One client's connection. Private to this folder.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/http/http_server.h"
#include "serve/http/wake_queue.h"

namespace tarn::serve {

/// What all connections of a server share. On its thread, but for the counts.
struct ServerState {
  HttpOptions options;
  std::vector<Route> routes;
  std::atomic<int64_t> connections{0};
  std::atomic<uint64_t> accepted{0}, refused{0}, requests{0}, bytes_sent{0};
  std::atomic<bool> stopping{false};
  const std::shared_ptr<WakeQueue> news = std::make_shared<WakeQueue>();
};

using Stream =
    boost::beast::basic_stream<boost::asio::generic::stream_protocol>;

/// Reads requests one after the other and writes each answer before it reads
/// the next. On the server's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerState> state, Stream stream);

  /// Runs until the connection ends.
  boost::asio::awaitable<void> Run();
  /// The server stops: closes an idle connection, and one that is answering
  /// after its answer.
  void Stop();
  /// The grace is over.
  void Abort();

 private:
  struct Read;  // a request as it was read
  struct Peer;  // whether the client is still there
  struct Plain {
    int status;
    std::string body;
    Headers headers;
  };

  void ReadWithin(double seconds);
  boost::asio::awaitable<bool> ReadRequest(Read& read);
  std::optional<Plain> Check(Read& read, const Route*& found,
                             PathArguments& arguments) const;
  std::shared_ptr<Exchange> Begin(const Read& read, const Route& route,
                                  const PathArguments& arguments);
  boost::asio::awaitable<bool> Answer(Read& read);
  boost::asio::awaitable<bool> Deliver(const Read& read);
  std::string FirstBytes(const Read& read, Exchange& exchange, bool& stream,
                         bool& pings, bool& ended) const;
  static std::string PingBytes(const Read& read);
  std::string NextBytes(const Read& read, Exchange& exchange,
                        bool& ended) const;
  std::string PlainBytes(const Read& read, const Plain& plain) const;
  void Watch(std::shared_ptr<Exchange> exchange, std::shared_ptr<Peer> peer);
  boost::asio::awaitable<void> WatchPeer(std::shared_ptr<Exchange> exchange,
                                         std::shared_ptr<Peer> peer);
  /// bytes: lives until the end of the wait.
  boost::asio::awaitable<bool> Write(const std::string& bytes);
  std::string HeadOf(const Read& read, int status, const std::string& type,
                     const Headers& headers, bool stream, size_t length) const;
  void Log(const Read& read, int status) const;

  std::shared_ptr<ServerState> state_;
  Stream stream_;
  boost::asio::steady_timer deadline_;  // of what is being read
  bool late_ = false;                   // it is past
  std::string buffer_;                  // read and not yet used
  std::shared_ptr<Exchange> exchange_;
  bool idle_ = true, keep_ = true;
};

}  // namespace tarn::serve
