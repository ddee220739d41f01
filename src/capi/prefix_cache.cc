// Prefix caches of the C interface.
#include "runtime/session/prefix_cache.h"

#include "capi/session_object.h"

struct tarn_prefix_cache {
  const tarn_model* model;
  tarn::PrefixCache cache;
};

using tarn::capi::Guard;
using tarn::capi::Require;

namespace {

void RequireSessionOf(const tarn_prefix_cache* cache,
                      const tarn_session* session) {
  Require(cache, "cache");
  Require(session, "session");
  if (session->model != cache->model) {
    throw tarn::ArgumentError("session", "a session of this cache's model",
                              "a session of another model");
  }
}

std::string SpaceOf(const char* space) { return space == nullptr ? "" : space; }

}  // namespace

tarn_status tarn_prefix_cache_new(const tarn_model* model, uint64_t max_bytes,
                                  tarn_prefix_cache** cache,
                                  tarn_error** error) {
  return Guard(error, [&] {
    Require(model, "model");
    Require(cache, "cache");
    *cache = new tarn_prefix_cache{
        model, tarn::PrefixCache(tarn::capi::Count(max_bytes))};
    tarn::capi::Hold(model);
  });
}

void tarn_prefix_cache_free(tarn_prefix_cache* cache) {
  if (cache == nullptr) return;
  const tarn_model* model = cache->model;
  delete cache;
  tarn::capi::Release(model);
}

tarn_status tarn_prefix_cache_restore(tarn_prefix_cache* cache,
                                      const char* space, const int32_t* tokens,
                                      uint64_t count, tarn_session* session,
                                      uint64_t* length, tarn_error** error) {
  return Guard(error, [&] {
    RequireSessionOf(cache, session);
    const int64_t known = cache->cache.Restore(
        SpaceOf(space), tarn::capi::Tokens(tokens, count), session->session);
    if (length != nullptr) *length = static_cast<uint64_t>(known);
  });
}

tarn_status tarn_prefix_cache_insert(tarn_prefix_cache* cache,
                                     const char* space, tarn_session* session,
                                     tarn_error** error) {
  return Guard(error, [&] {
    RequireSessionOf(cache, session);
    cache->cache.Insert(SpaceOf(space), session->session);
  });
}

uint64_t tarn_prefix_cache_bytes(const tarn_prefix_cache* cache) {
  return cache == nullptr ? 0 : static_cast<uint64_t>(cache->cache.bytes());
}
