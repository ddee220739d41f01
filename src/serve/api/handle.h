// What every handler does around its own work. Included by .cc files only.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/json.h"
#include "core/json/json_object.h"
#include "serve/api/reply.h"

namespace tarn::serve {

inline void SendJson(Response& response, const Json& json, int status = 200) {
  response.Send(status, "application/json",
                json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

/// Answers with the error that `work` throws, if it does.
template <typename F>
void Guarded(Response& response, const F& work) {
  try {
    work();
  } catch (const Error& error) {
    SendError(response, error);
  } catch (const std::bad_alloc&) {
    SendError(response, Error(ErrorCode::kInternal, "out of memory"));
  } catch (const std::exception& error) {
    SendError(response, Error(ErrorCode::kInternal, error.what()));
  }
}

/// A handler of a JSON document: work(document, request, arguments, response),
/// called on a thread of the service's queue, since documents, tokenizers and
/// grammars may take long.
template <typename F>
auto JsonHandler(const std::shared_ptr<Service>& service, F work) {
  return [service, work = std::move(work)](const Request& request,
                                           const PathArguments& arguments,
                                           Response response) {
    service->work().Add([work, request, arguments, response]() mutable {
      if (response.gone()) return;
      Guarded(response, [&] {
        const nlohmann::json body =
            request.body.empty()
                ? nlohmann::json::object()
                : ParseStrictJson(request.body, "request", kMaxRequestBytes)
                      .Take();
        work(JsonObject(body, ""), request, arguments, response);
      });
    });
  };
}

/// What a client's prompts are cached under: nobody else's are found there.
inline const std::string& SpaceOf(const Request& request) {
  return request.key;
}

/// Begins all prompts of a reply at once, or none of them.
void SubmitAll(ServedModel& model, const std::shared_ptr<Reply>& reply,
               std::vector<std::vector<int32_t>> prompts,
               const TextOptions& options, const std::string& space);

}  // namespace tarn::serve
