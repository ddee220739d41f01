// GET /health, /v1/models, /props and /metrics: what a server says of itself.
#include "core/text.h"
#include "runtime/sampling/option_table.h"
#include "serve/api/handle.h"
#include "serve/api/metrics.h"
#include "serve/api/routes.h"
#include "serve/page/page.h"

namespace tarn::serve {
namespace {

Json ModelJson(const ServedModel& model) {
  const Model& held = model.loaded.model;
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "tarn"},
          {"meta",
           {{"n_params", held.parameters()},
            {"vocab_size", held.vocab_size()},
            {"weight_bytes", held.weight_bytes()},
            {"state_bytes", held.state_bytes()},
            {"state_bytes_per_token", held.state_bytes_per_token()},
            {"weights", Name(held.options().weights)},
            {"chat", model.format.has_value()}}}};
}

Json Value(const SamplerValue& value) {
  return std::visit([](const auto& held) { return Json(held); }, value);
}

// The options of sampling, from which a page builds its controls.
Json SamplingSchema(const SamplerOptions& defaults) {
  Json rows = Json::array();
  for (const SamplerOption& option : SamplerOptionTable()) {
    Json row = {{"name", option.name},
                {"default", Value(ValueOf(option, defaults))},
                {"wants", WantedBy(option)},
                {"help", option.help}};
    if (option.least > -1e300) row["least"] = option.least;
    if (option.most < 1e300) row["most"] = option.most;
    rows.push_back(std::move(row));
  }
  return rows;
}

// Of a model with what it is doing now, for those who watch it.
Json LoadedJson(const ServedModel& model) {
  Json json = ModelJson(model);
  const SchedulerCounts counts = model.scheduler->counts();
  json["load"] = {{"running", counts.running},
                  {"slots", model.scheduler->options().slots},
                  {"waiting", counts.waiting},
                  {"queue", model.scheduler->options().queue}};
  return json;
}

Json PropsJson(const ServedModel& model, const ApiOptions& options) {
  Json props = ModelJson(model);
  props["build"] = options.version;
  props["total_slots"] = model.scheduler->options().slots;
  props["queue"] = model.scheduler->options().queue;
  props["max_tokens"] = model.options.max_tokens;
  props["sessions"] = options.sessions;
  props["parks"] = !model.options.sessions.folder.empty();
  props["sampling"] = SamplingSchema(model.loaded.defaults.sampler);
  return props;
}

}  // namespace

std::vector<Route> FactRoutes(std::shared_ptr<Service> service,
                              const ApiOptions& options) {
  const auto health = [options](const Request&, const PathArguments&,
                                Response response) {
    const bool ends = options.draining();
    SendJson(response, {{"status", ends ? "ending" : "ok"}}, ends ? 503 : 200);
  };
  const auto models = [service](const Request&, const PathArguments&,
                                Response response) {
    Json list = {{"object", "list"}, {"data", Json::array()}};
    for (const auto& model : service->models()) {
      list["data"].push_back(ModelJson(*model));
    }
    SendJson(response, list);
  };
  const auto one = [service](const Request&, const PathArguments& arguments,
                             Response response) {
    Guarded(response, [&] {
      SendJson(response, ModelJson(service->Find(arguments.at("name"))));
    });
  };
  const auto props = [service, options](const Request&, const PathArguments&,
                                        Response response) {
    Json all = PropsJson(*service->models().front(), options);
    all["models"] = Json::array();
    for (const auto& model : service->models()) {
      all["models"].push_back(LoadedJson(*model));
    }
    SendJson(response, all);
  };
  std::vector<Route> routes = {
      {"GET", "/health", health, /*is_public=*/true},
      {"GET", "/v1/models", models},
      {"GET", "/v1/models/{name}", one},
      {"GET", "/props", props},
  };
  if (options.metrics) {
    const auto metrics = [service](const Request&, const PathArguments&,
                                   Response response) {
      response.Send(200, "text/plain; version=0.0.4", MetricsText(*service));
    };
    routes.push_back({"GET", "/metrics", metrics});
  }
  return routes;
}

std::vector<Route> ApiRoutes(std::shared_ptr<Service> service,
                             const ApiOptions& options) {
  std::vector<Route> all;
  const auto add = [&](std::vector<Route> routes) {
    for (Route& route : routes) all.push_back(std::move(route));
  };
  add(FactRoutes(service, options));
  add(CompletionRoutes(service));
  add(ChatRoutes(service));
  add(ResponseRoutes(service));
  add(MessageRoutes(service));
  add(EmbeddingRoutes(service));
  add(TokenRoutes(service));
  if (options.sessions) add(SessionRoutes(service));
  if (options.page) add(PageRoutes());
  return all;
}

}  // namespace tarn::serve
