// Requests of the server's interface over a small model that answers them. The
// input: requests between NUL bytes, one after the other, each a line with
// method and path, and a document.
#include <poll.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "fuzz/tiny_model.h"
#include "serve/api/routes.h"
#include "serve/http/exchange.h"
#include "serve/http/request_checks.h"

namespace tarn::fuzz {
namespace {

using namespace serve;

struct Answer {
  int status = 0;
  std::string body;
};

class Server {
 public:
  Server() {
    TinyModel model = OpenTinyModel();
    ServiceOptions options;
    options.scheduler.slots = 8;
    options.scheduler.queue = 2;
    options.scheduler.cache_bytes = 1 << 20;
    options.sessions.most = 4;
    options.max_tokens = 8;
    std::vector<std::unique_ptr<ServedModel>> models;
    models.push_back(std::make_unique<ServedModel>(
        "tiny", std::move(model.loaded), std::move(model.format), options));
    service_ = std::make_shared<Service>(std::move(models));
    ApiOptions api;
    api.version = "0";
    api.metrics = true;
    routes_ = ApiRoutes(service_, api);
  }

  // The whole answer; nothing where there is no such route.
  std::optional<Answer> Ask(const Request& request) {
    for (const Route& route : routes_) {
      const auto arguments = MatchPath(route.path, request.path);
      if (!arguments || route.method != request.method) continue;
      const auto exchange =
          std::make_shared<Exchange>(context_.get_executor(), news_);
      route.handler(request, *arguments, Response(exchange));
      return AnswerOf(*exchange);
    }
    return std::nullopt;
  }

  // The next input finds no sessions.
  void DropSessions() {
    ServedModel& model = *service_->models().front();
    model.scheduler->Run([&] {
      for (const auto& held : model.sessions->List("")) {
        model.sessions->Drop("", held->id);
      }
    });
  }

 private:
  Answer AnswerOf(Exchange& exchange) {
    Answer answer;
    for (bool ended = false; !ended;) {
      if (!exchange.HasNews()) {
        pollfd waits{news_->descriptor(), POLLIN, 0};
        ::poll(&waits, 1, -1);
        for (const auto& one : news_->Take()) one->Wake();
      }
      if (const auto head = exchange.TakeHead()) answer.status = head->status;
      const std::string part = exchange.TakeBody(ended);
      exchange.Sent(part.size());
      answer.body += part;
    }
    return answer;
  }

  boost::asio::io_context context_{1};
  const std::shared_ptr<WakeQueue> news_ = std::make_shared<WakeQueue>();
  std::shared_ptr<Service> service_;
  std::vector<Route> routes_;
};

Request RequestOf(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const size_t space = line.find(' ');
  Request request;
  request.method = line.substr(0, space);
  if (space != line.npos) {
    const std::string_view target = line.substr(space + 1);
    request.path = PathOfTarget(target).value_or("");
    const size_t query = target.find('?');
    if (query != target.npos) request.query = target.substr(query + 1);
  }
  if (line.size() < text.size()) request.body = text.substr(line.size() + 1);
  request.id = "input";
  return request;
}

// 500 is for a broken invariant: no request may reach one.
void CheckAnswer(const Answer& answer) {
  Require(answer.status >= 200 && answer.status < 600 && answer.status != 500,
          "status " + std::to_string(answer.status) + ": " + answer.body);
  Require(answer.body.find("\"type\":\"server_error\"") == std::string::npos ||
              answer.status > 500,
          answer.body);
  if (answer.status < 300) ++Accepted();
}

}  // namespace
}  // namespace tarn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tarn;
  static fuzz::Server server;
  std::string_view rest = fuzz::TextOf(data, size);
  constexpr int kMostRequests = 16;
  for (int i = 0; i < kMostRequests && !rest.empty(); ++i) {
    const size_t end = rest.find('\0');
    const auto answer = server.Ask(fuzz::RequestOf(rest.substr(0, end)));
    if (answer) fuzz::CheckAnswer(*answer);
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
  }
  server.DropSessions();
  return 0;
}
