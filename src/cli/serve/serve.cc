// `tarn serve`: models over HTTP, with sessions.
#include <poll.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/console/parse.h"
#include "cli/console/signals.h"
#include "cli/serve/serve_flags.h"
#include "serve/api/routes.h"
#include "serve/http/http_server.h"
#include "text/template/chat_format.h"

namespace tarn::cli {
namespace {

using serve::ApiOptions;
using serve::HttpServer;
using serve::ServedModel;
using serve::Service;

// A model, and its chat format where it has one. What cannot be served is found
// before anything listens.
std::unique_ptr<ServedModel> OpenServed(const ServedPath& path,
                                        const ServeFlags& flags) {
  LoadedModel model = OpenModelPath(path.path, flags.model.Options());
  Result<ChatFormat> format = ChatFormat::Open(ModelPath(path.path));
  std::optional<ChatFormat> chat;
  if (format.ok()) chat = std::move(format).Take();
  serve::ServiceOptions options = flags.service;
  if (!options.sessions.folder.empty()) {
    options.sessions.folder += "/" + path.name;
  }
  try {
    return std::make_unique<ServedModel>(path.name, std::move(model),
                                         std::move(chat), options);
  } catch (const ArgumentError& error) {
    throw ExitError(kExitBadModel, StrCat(path.path, ": ", error.what()));
  } catch (const FormatError& error) {  // of a draft model
    throw ExitError(kExitBadModel, StrCat("--speculate: ", error.what()));
  } catch (const IoError& error) {
    throw ExitError(kExitBadModel, StrCat("--speculate: ", error.what()));
  }
}

// Waits for a signal without using the processor. Signals are blocked outside
// of the wait, so that none is missed between the question and the wait.
void WaitForSignal(const sigset_t& unblocked) {
  while (PendingSignal() == 0) ppoll(nullptr, 0, nullptr, &unblocked);
}

sigset_t BlockSignals() {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  return before;
}

void ParkSessions(const Service& service) {
  for (const auto& model : service.models()) {
    model->scheduler->Run([&] {
      model->sessions->ParkAll([&](const Error& error) {
        std::fprintf(stderr, "tarn serve: %s\n", error.what());
      });
    });
  }
}

void PrintStart(const Service& service, const serve::HttpOptions& http,
                uint16_t port) {
  for (const auto& model : service.models()) {
    std::string formats;
    for (const auto& [format, numbers] : model->loaded.model.weight_formats()) {
      formats += StrCat(formats.empty() ? "" : ", ", format->name);
    }
    std::fprintf(stderr, "model    %s, %lld parameters, weights %s%s\n",
                 model->name.c_str(),
                 static_cast<long long>(model->loaded.model.parameters()),
                 formats.c_str(), model->format ? ", chat" : "");
  }
  if (!http.unix_socket.empty()) {
    std::fprintf(stderr, "listens  unix:%s\n", http.unix_socket.c_str());
  } else {
    const bool six = http.address.find(':') != std::string::npos;
    std::fprintf(stderr, "listens  http://%s%s%s:%d\n", six ? "[" : "",
                 http.address.c_str(), six ? "]" : "", port);
  }
  std::fputs("Ctrl-C ends; texts being written may end first.\n", stderr);
}

}  // namespace

int Serve(int argc, char** argv) {
  ServeFlags flags;
  ArgumentParser parser("Serves models over HTTP, with sessions.",
                        "tarn serve");
  DeclareServe(parser, flags);
  if (const auto code = parser.Parse(argc, argv)) return *code;
  FinishServeFlags(flags);
  serve::CheckHttpOptions(flags.http);

  std::vector<std::unique_ptr<ServedModel>> models;
  const sigset_t unblocked = BlockSignals();  // in all threads from here on
  for (const ServedPath& path : flags.paths) {
    models.push_back(OpenServed(path, flags));
  }
  auto service = std::make_shared<Service>(std::move(models));
  HttpServer* running = nullptr;
  ApiOptions api;
  api.version = TARN_VERSION;
  api.metrics = flags.metrics;
  api.sessions = !flags.no_sessions;
  api.page = !flags.no_page && api.sessions;
  api.draining = [&running] {
    return running != nullptr && running->stopping();
  };
  if (flags.log_requests) {
    flags.http.log = [](const std::string& line) {
      std::fprintf(stderr, "%s\n", line.c_str());
    };
  }
  HttpServer server(flags.http, serve::ApiRoutes(service, api));
  running = &server;
  PrintStart(*service, flags.http, server.port());
  std::future<void> end =
      std::async(std::launch::async, [&server] { server.Run(); });
  WaitForSignal(unblocked);
  pthread_sigmask(SIG_SETMASK, &unblocked, nullptr);  // a second one ends
  std::fputs("\nending\n", stderr);
  server.Stop();
  // Streams that do not end by themselves are ended, with their last events,
  // before their connections are closed.
  const std::chrono::duration<double> most(0.8 * flags.http.grace_seconds);
  if (end.wait_for(most) == std::future_status::timeout) {
    for (const auto& model : service->models()) model->scheduler->CancelAll();
  }
  end.get();
  service->Settle();
  ParkSessions(*service);
  return kExitOk;
}

}  // namespace tarn::cli
