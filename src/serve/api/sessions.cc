// Sessions as values over HTTP: /sessions and what can be done with one.
#include <algorithm>
#include <chrono>
#include <span>

#include "core/text.h"
#include "serve/api/chat_request.h"
#include "serve/api/handle.h"
#include "serve/api/routes.h"
#include "serve/api/session_reply.h"

namespace tarn::serve {
namespace {

using Held = SessionStore::Held;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMaxForks = 8;

double MicrosecondsSince(Clock::time_point begun) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begun)
      .count();
}

Json SessionJson(const ServedModel& model, const HeldSession& held) {
  Json json = {
      {"id", held.id},
      {"object", "session"},
      {"model", model.name},
      {"created", held.created},
      {"last_used", held.used_at},
      {"parked", !held.session.has_value()},
      {"busy", held.busy},
      {"parent", held.parent.empty() ? Json(nullptr) : Json(held.parent)},
      {"forked_at", held.forked_at}};
  if (!held.session) {
    json["position"] = model.sessions->parked_position(held);
    json["state_bytes"] = model.sessions->parked_bytes(held);
    return json;
  }
  const Session& session = *held.session;
  json["position"] = session.position();
  json["pending"] = session.pending().size();
  json["state_bytes"] = session.state_bytes();
  json["snapshot_bytes"] = session.snapshot_bytes();
  json["snapshots"] = session.snapshots().size();
  json["marks"] = Json::object();
  for (const auto& [name, mark] : session.marks()) {
    json["marks"][name] = mark.position;
  }
  return json;
}

// Runs on the scheduler's thread and answers from there.
template <typename F>
void OnScheduler(ServedModel& model, Response response, F work) {
  model.scheduler->Post([response, work = std::move(work)]() mutable {
    Guarded(response, [&] { work(response); });
  });
}

// A retried request must not act twice.
void CheckPosition(const std::optional<int64_t>& wanted,
                   const HeldSession& held) {
  const int64_t position = held.session->position();
  if (!wanted || *wanted == position) return;
  throw SessionConflict("position_mismatch", StrCat("position ", *wanted),
                        StrCat(position));
}

std::optional<int64_t> IfPosition(const JsonObject& body) {
  return body.FindInteger("if_position", 0, INT64_MAX);
}

// Tokens of a request about a session: of `tokens`, of `text`, or of
// `messages` by the model's template; nothing where there is none of them.
std::optional<std::vector<int32_t>> ReadTokens(const JsonObject& body,
                                               const std::string& text,
                                               const ServedModel& model) {
  if (body.Has("tokens")) {
    const auto last = static_cast<int32_t>(model.loaded.model.vocab_size() - 1);
    return body.Integers("tokens", 0, last);
  }
  if (body.Has("messages")) {
    TextOptions ignored;
    return ReadChatPrompt(body, text, model, ignored).ids;
  }
  const std::optional<std::string> added = body.FindText("text");
  if (!added) return std::nullopt;
  Result<std::vector<int32_t>> ids = model.loaded.tokenizer.Encode(
      *added, EncodeOptions{.add_special =
                                body.FindFlag("add_special").value_or(false)});
  if (!ids.ok()) {
    throw FormatError("text", ids.error().wanted(), ids.error().given());
  }
  return std::move(ids).Take();
}

// Tokens are consumed as a request of no text, so that they take their turn
// with all others and a long one does not stop them.
void Consume(ServedModel& model, const Held& held, std::vector<int32_t> tokens,
             Response response, bool created) {
  TextRequest request;
  request.prompt = std::move(tokens);
  request.session = held;
  request.space = held->space;
  request.sink = std::make_unique<SessionSink>(
      response, [&model, held, created](const TextUsage& usage) {
        Json json = SessionJson(model, *held);
        json["computed"] = usage.prompt_computed;
        json["prompt_ms"] = usage.prompt_ms;
        return std::pair(created ? 201 : 200, json);
      });
  const auto ticket = request.ticket;
  response.OnGone([ticket] { ticket->Cancel(); });
  model.scheduler->Submit(std::move(request));
}

void Create(ServedModel& model, const JsonObject& body, const Request& request,
            Response response) {
  const std::string id = body.FindText("id").value_or("");
  const auto tokens = ReadTokens(body, request.body, model);
  const std::optional<std::string> from = body.FindText("from");
  OnScheduler(
      model, response,
      [&model, id, tokens, from, space = SpaceOf(request)](Response& response) {
        const Held held = from ? model.sessions->Fork(space, *from, id)
                               : model.sessions->Create(space, id);
        model.sessions->Fit();
        if (tokens && !tokens->empty()) {
          Consume(model, held, *tokens, response, /*created=*/true);
        } else {
          SendJson(response, SessionJson(model, *held), 201);
        }
      });
}

void Append(ServedModel& model, const std::string& id, const JsonObject& body,
            const Request& request, Response response) {
  const auto tokens = ReadTokens(body, request.body, model);
  if (!tokens) {
    throw FormatError("text", "a text, tokens or messages", "none of them");
  }
  OnScheduler(model, response,
              [&model, id, tokens, wanted = IfPosition(body),
               space = SpaceOf(request)](Response& response) {
                const Held held = model.sessions->Use(space, id);
                CheckPosition(wanted, *held);
                Consume(model, held, *tokens, response, /*created=*/false);
              });
}

// Brings a session to where it has read the longest beginning of a conversation
// that it knows; returns the rest, which is what is still to be read.
std::vector<int32_t> ContinueWith(SessionStore& sessions, HeldSession& held,
                                  std::span<const int32_t> conversation) {
  const std::span<const int32_t> known = held.session->tokens();
  const size_t most = std::min(known.size(), conversation.size());
  const auto part =
      std::mismatch(known.begin(), known.begin() + static_cast<ptrdiff_t>(most),
                    conversation.begin());
  const auto common = static_cast<int64_t>(part.first - known.begin());
  sessions.RollBack(held, common);
  const auto rest = conversation.subspan(static_cast<size_t>(common));
  return {rest.begin(), rest.end()};
}

void Complete(ServedModel& model, const std::string& id, const JsonObject& body,
              const Request& request, Response response) {
  TextOptions options = ReadTextOptions(body, model);
  if (options.choices != 1) {
    throw UnsupportedParameter("n", "1: fork the session for more");
  }
  AnswerForm form;
  std::vector<int32_t> tokens;
  const bool conversation = body.Has("messages");
  if (conversation) {
    ChatPrompt prompt = ReadChatPrompt(body, request.body, model, options);
    tokens = std::move(prompt.ids);
    form = std::move(prompt.answer);
  } else {
    tokens =
        ReadTokens(body, request.body, model).value_or(std::vector<int32_t>{});
  }
  ReadConstraint(body, model, options);
  const bool roll_back =
      body.FindText("on_cancel").value_or("keep") == "rollback";
  OnScheduler(model, response,
              [&model, id, options, form, tokens, conversation, roll_back,
               wanted = IfPosition(body),
               space = SpaceOf(request)](Response& response) {
                const Held held = model.sessions->Use(space, id);
                CheckPosition(wanted, *held);
                auto reply = std::make_shared<SessionTextReply>(
                    model, options, response, form, held);
                TextRequest text;
                text.prompt = conversation
                                  ? ContinueWith(*model.sessions, *held, tokens)
                                  : tokens;
                text.options = options.sequence;
                text.max_tokens = options.max_tokens;
                text.session = held;
                text.space = space;
                text.roll_back_when_cancelled = roll_back;
                text.sink = reply->SinkFor(text.ticket);
                model.scheduler->Submit(std::move(text));
              });
}

void ForkSession(ServedModel& model, const std::string& id,
                 const JsonObject& body, const Request& request,
                 Response response) {
  std::vector<std::string> ids;
  if (const nlohmann::json* list = body.FindList("ids")) {
    for (const nlohmann::json& one : *list) {
      if (!one.is_string()) {
        throw FormatError(ElementName("ids", ids.size()), "a text",
                          JsonGiven(one));
      }
      ids.push_back(one.get<std::string>());
    }
  }
  const int64_t count =
      body.FindInteger("n", 1, kMaxForks)
          .value_or(std::max<int64_t>(1, static_cast<int64_t>(ids.size())));
  if (static_cast<int64_t>(ids.size()) > count) {
    throw FormatError("ids", StrCat("at most n = ", count), StrCat(ids.size()));
  }
  ids.resize(static_cast<size_t>(count));
  OnScheduler(
      model, response,
      [&model, id, ids, space = SpaceOf(request)](Response& response) {
        const auto begun = Clock::now();
        Json forks = Json::array();
        for (const std::string& name : ids) {
          const Held held = model.sessions->Fork(space, id, name);
          forks.push_back(SessionJson(model, *held));
        }
        const double us = MicrosecondsSince(begun);
        model.sessions->Fit();
        SendJson(response, {{"sessions", std::move(forks)}, {"us", us}}, 201);
      });
}

void MarkSession(ServedModel& model, const std::string& id,
                 const JsonObject& body, const Request& request,
                 Response response) {
  const std::string name = body.Text("name");
  CheckMarkName(name);
  OnScheduler(model, response,
              [&model, id, name, wanted = IfPosition(body),
               space = SpaceOf(request)](Response& response) {
                const Held held = model.sessions->Use(space, id);
                CheckPosition(wanted, *held);
                const auto begun = Clock::now();
                held->session->Mark(name);
                const double us = MicrosecondsSince(begun);
                Json json = SessionJson(model, *held);
                json["us"] = us;
                SendJson(response, json);
              });
}

void RollBackSession(ServedModel& model, const std::string& id,
                     const JsonObject& body, const Request& request,
                     Response response) {
  const std::optional<std::string> mark = body.FindText("mark");
  const auto to = body.FindInteger("to", 0, INT64_MAX);
  const auto tokens = body.FindInteger("tokens", 0, INT64_MAX);
  if (mark.has_value() + to.has_value() + tokens.has_value() != 1) {
    throw FormatError("to", "one of tokens, to and mark", "none or several");
  }
  OnScheduler(
      model, response,
      [&model, id, mark, to, tokens, wanted = IfPosition(body),
       space = SpaceOf(request)](Response& response) {
        const Held held = model.sessions->Use(space, id);
        CheckPosition(wanted, *held);
        int64_t position = to.value_or(0);
        if (tokens) position = held->session->position() - *tokens;
        if (mark) {
          const auto found = held->session->marks().find(*mark);
          if (found == held->session->marks().end()) {
            throw FormatError("mark", "the name of a mark", Quoted(*mark));
          }
          position = found->second.position;
        }
        const auto begun = Clock::now();
        const int64_t replayed = model.sessions->RollBack(*held, position);
        const double us = MicrosecondsSince(begun);
        Json json = SessionJson(model, *held);
        json["replayed"] = replayed;
        json["us"] = us;
        SendJson(response, json);
      });
}

void ParkSession(ServedModel& model, const std::string& id,
                 const Request& request, Response response) {
  OnScheduler(model, response,
              [&model, id, space = SpaceOf(request)](Response& response) {
                const auto begun = Clock::now();
                model.sessions->Park(space, id);
                Json json =
                    SessionJson(model, *model.sessions->Find(space, id));
                json["us"] = MicrosecondsSince(begun);
                SendJson(response, json);
              });
}

void RestoreSession(ServedModel& model, const std::string& id,
                    const Request& request, Response response) {
  OnScheduler(model, response,
              [&model, id, space = SpaceOf(request)](Response& response) {
                const auto begun = Clock::now();
                const Held held = model.sessions->Use(space, id);
                Json json = SessionJson(model, *held);
                json["us"] = MicrosecondsSince(begun);
                SendJson(response, json);
              });
}

// The sessions of a client as a forest: each with those forked from it.
Json TreeOf(const ServedModel& model, const std::vector<Held>& all) {
  Json list = Json::array();
  for (const Held& held : all) list.push_back(SessionJson(model, *held));
  return {{"object", "list"}, {"data", std::move(list)}};
}

// Sessions are found by the model that a request names: in its document, or in
// the query of a request without one.
std::optional<std::string> ModelIn(const Request& request) {
  const std::string key = "model=";
  const size_t at = request.query.find(key);
  if (at == std::string::npos) return std::nullopt;
  const size_t end = request.query.find('&', at);
  return request.query.substr(
      at + key.size(), end == std::string::npos ? end : end - at - key.size());
}

}  // namespace

std::vector<Route> SessionRoutes(std::shared_ptr<Service> service) {
  using Work = void (*)(ServedModel&, const std::string&, const JsonObject&,
                        const Request&, Response);
  const auto of_one = [service](Work work) {
    return JsonHandler(
        service,
        [service, work](const JsonObject& body, const Request& request,
                        const PathArguments& arguments, Response& response) {
          work(service->Find(body.FindText("model")), arguments.at("id"), body,
               request, response);
        });
  };
  const auto create = JsonHandler(
      service, [service](const JsonObject& body, const Request& request,
                         const PathArguments&, Response& response) {
        Create(service->Find(body.FindText("model")), body, request, response);
      });
  const auto simple = [service](auto work) {
    return [service, work](const Request& request,
                           const PathArguments& arguments, Response response) {
      Guarded(response, [&] {
        work(service->Find(ModelIn(request)), arguments, request, response);
      });
    };
  };
  const auto list = simple([](ServedModel& model, const PathArguments&,
                              const Request& request, Response response) {
    OnScheduler(model, response,
                [&model, space = SpaceOf(request)](Response& response) {
                  SendJson(response,
                           TreeOf(model, model.sessions->List(space)));
                });
  });
  const auto get = simple([](ServedModel& model, const PathArguments& arguments,
                             const Request& request, Response response) {
    OnScheduler(model, response,
                [&model, id = arguments.at("id"),
                 space = SpaceOf(request)](Response& response) {
                  const Held held = model.sessions->Find(space, id);
                  if (held == nullptr) throw NoSuchSession(id);
                  Json json = SessionJson(model, *held);
                  if (held->session) {
                    const auto tokens = held->session->tokens();
                    json["tokens"] =
                        std::vector<int32_t>(tokens.begin(), tokens.end());
                  }
                  SendJson(response, json);
                });
  });
  const auto drop =
      simple([](ServedModel& model, const PathArguments& arguments,
                const Request& request, Response response) {
        OnScheduler(model, response,
                    [&model, id = arguments.at("id"),
                     space = SpaceOf(request)](Response& response) {
                      model.sessions->Drop(space, id);
                      SendJson(response, {{"id", id}, {"deleted", true}});
                    });
      });
  const auto park = [](ServedModel& model, const std::string& id,
                       const JsonObject&, const Request& request,
                       Response response) {
    ParkSession(model, id, request, response);
  };
  const auto restore = [](ServedModel& model, const std::string& id,
                          const JsonObject&, const Request& request,
                          Response response) {
    RestoreSession(model, id, request, response);
  };
  std::vector<Route> routes;
  for (const std::string base : {"/sessions", "/v1/sessions"}) {
    routes.push_back({"GET", base, list});
    routes.push_back({"POST", base, create});
    routes.push_back({"GET", base + "/{id}", get});
    routes.push_back({"DELETE", base + "/{id}", drop});
    routes.push_back({"POST", base + "/{id}/append", of_one(Append)});
    routes.push_back({"POST", base + "/{id}/completions", of_one(Complete)});
    routes.push_back({"POST", base + "/{id}/fork", of_one(ForkSession)});
    routes.push_back({"POST", base + "/{id}/mark", of_one(MarkSession)});
    routes.push_back(
        {"POST", base + "/{id}/rollback", of_one(RollBackSession)});
    routes.push_back({"POST", base + "/{id}/park", of_one(park)});
    routes.push_back({"POST", base + "/{id}/restore", of_one(restore)});
  }
  return routes;
}

}  // namespace tarn::serve
