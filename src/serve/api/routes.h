// The server's interface: OpenAI's, Anthropic's messages, and tarn's own for
// sessions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/api/service.h"
#include "serve/http/http_server.h"

namespace tarn::serve {

/// Facts and switches of a server that its routes tell or obey.
struct ApiOptions {
  std::string version;
  bool metrics = false, sessions = true, page = true;
  /// Unknown fields of requests are refused instead of ignored.
  bool strict_fields = false;
  /// Whether it is about to end: /health says so.
  std::function<bool()> draining = [] { return false; };
};

/// All routes over the service, which they share.
std::vector<Route> ApiRoutes(std::shared_ptr<Service> service,
                             const ApiOptions& options);

/// Those of one interface; ApiRoutes has them all.
std::vector<Route> CompletionRoutes(std::shared_ptr<Service> service);
std::vector<Route> ChatRoutes(std::shared_ptr<Service> service);
std::vector<Route> ResponseRoutes(std::shared_ptr<Service> service);
std::vector<Route> MessageRoutes(std::shared_ptr<Service> service);
std::vector<Route> SessionRoutes(std::shared_ptr<Service> service);
std::vector<Route> EmbeddingRoutes(std::shared_ptr<Service> service);
std::vector<Route> TokenRoutes(std::shared_ptr<Service> service);
std::vector<Route> FactRoutes(std::shared_ptr<Service> service,
                              const ApiOptions& options);

}  // namespace tarn::serve
