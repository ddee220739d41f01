// What takes long holds nobody up: no clock is read, a server that waits where
// it should not would wait for ever.
#include "serve/api/work_queue.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reference/test_model.h"
#include "serve/api/routes.h"

namespace tarn::serve {
namespace {

using namespace tarn::testing;

TEST(WorkQueueTest, ItsLastOwnerMayBeOneOfItsFunctions) {
  std::latch ended(1);
  {
    struct AtTheEnd {
      std::latch& latch;
      ~AtTheEnd() { latch.count_down(); }
    };
    struct Owner {  // the queue goes before the one that tells
      AtTheEnd tells;
      WorkQueue queue;
    };
    const auto made = new Owner{{ended}, WorkQueue()};
    std::shared_ptr<Owner> owner(made);
    std::latch dropped(1);
    std::latch taken(1);
    owner->queue.Add([owner, &dropped, &taken] {
      taken.count_down();
      dropped.wait();
    });
    taken.wait();
    owner.reset();
    dropped.count_down();
    ended.wait();
  }
}

// One request on a connection of its own; the answer is read up to its end.
class OneRequest {
 public:
  OneRequest(uint16_t port, const std::string& method, const std::string& path,
             const std::string& body = "")
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(0, ::connect(fd_, reinterpret_cast<sockaddr*>(&address),
                           sizeof(address)));
    std::string text = method + " " + path +
                       " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    if (!body.empty()) {
      text += "Content-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n";
    }
    text += "\r\n" + body;
    EXPECT_EQ(static_cast<ssize_t>(text.size()),
              ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL));
  }
  ~OneRequest() { ::close(fd_); }
  OneRequest(const OneRequest&) = delete;
  OneRequest& operator=(const OneRequest&) = delete;

  std::string Answer() {
    std::string text;
    char bytes[4096];
    for (ssize_t n = 1; n > 0;) {
      n = ::recv(fd_, bytes, sizeof(bytes), 0);
      if (n > 0) text.append(bytes, static_cast<size_t>(n));
    }
    return text;
  }

 private:
  int fd_;
};

class ServedApi : public ::testing::Test {
 protected:
  ServedApi() {
    ModelConfig config = SmallConfig();
    config.vocab_size = 61;
    config.tokenizer = TokenizerKind::kIds;
    config.positions = Positions::kNone;
    FinishConfig(config);
    WriteModel(folder_.path(), config, RandomTensors(config, 1));
    WriteFileAtomically(folder_.path() + "/tokenizer.json",
                        Tokenizer::Ids(config.vocab_size).ToJson());
    std::vector<std::unique_ptr<ServedModel>> models;
    models.push_back(std::make_unique<ServedModel>(
        "small",
        LoadedModel::Open(ModelPath(folder_.path()), {.threads = 1}).Take(),
        std::nullopt, ServiceOptions{}));
    service_ = std::make_shared<Service>(std::move(models));
    ApiOptions api;
    api.metrics = true;
    HttpOptions http;
    http.port = 0;
    server_ = std::make_unique<HttpServer>(http, ApiRoutes(service_, api));
    thread_ = std::thread([this] { server_->Run(); });
  }
  ~ServedApi() override {
    server_->Stop();
    thread_.join();
    service_->Settle();
  }
  std::string Ask(const std::string& path) {
    return OneRequest(server_->port(), "GET", path).Answer();
  }

  TemporaryFolder folder_;
  std::shared_ptr<Service> service_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST_F(ServedApi, NoRequestWaitsForTheTextOfAnother) {
  const int threads = service_->work().threads();
  std::latch begun(threads);
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  for (int i = 0; i < threads; ++i) {
    service_->work().Add([&begun, released] {
      begun.count_down();
      released.wait();
    });
  }
  begun.wait();
  OneRequest long_one(server_->port(), "POST", "/tokenize",
                      R"({"content": "1 2 3"})");
  EXPECT_TRUE(Has(Ask("/health"), R"({"status":"ok"})"));
  EXPECT_TRUE(Has(Ask("/props"), "small"));
  release.set_value();
  EXPECT_TRUE(Has(long_one.Answer(), R"({"tokens":[1)"));
}

TEST_F(ServedApi, MetricsWaitForNoStepOfTheModel) {
  std::promise<void> begun, release;
  std::future<void> released = release.get_future();
  Scheduler& scheduler = *service_->models().front()->scheduler;
  scheduler.Post([&] {
    begun.set_value();
    released.wait();
  });
  begun.get_future().wait();
  const std::string metrics = Ask("/metrics");
  EXPECT_TRUE(Has(metrics, "tarn_sessions_live{model=\"small\"} 0"));
  release.set_value();
  scheduler.Run([] {});  // after it the function has ended
}

TEST_F(ServedApi, VectorsOfTexts) {
  OneRequest request(
      server_->port(), "POST", "/v1/embeddings",
      R"({"input": [[1, 2], [3]], "encoding_format": "base64"})");
  const std::string answer = request.Answer();
  EXPECT_TRUE(Has(answer, R"("usage":{"prompt_tokens":3,"total_tokens":3})"))
      << answer;
}

TEST(WorkQueue, RunsAllThatWasAdded) {
  std::atomic<int> runs = 0;
  {
    WorkQueue queue(3);
    EXPECT_EQ(3, queue.threads());
    for (int i = 0; i < 100; ++i) queue.Add([&] { ++runs; });
    queue.Finish();
    EXPECT_EQ(100, runs);
    queue.Add([&] { ++runs; });
    queue.Finish();
  }
  EXPECT_EQ(100, runs);
}

}  // namespace
}  // namespace tarn::serve
