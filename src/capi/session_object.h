// What a tarn_session refers to.
#pragma once

#include <memory>
#include <utility>

#include "capi/guard.h"
#include "runtime/session/session.h"

struct tarn_session {
  tarn_session(const tarn_model* of, tarn::Session with)
      : model(of), session(std::move(with)) {
    tarn::capi::Hold(model);
  }
  tarn_session(const tarn_session&) = delete;
  tarn_session& operator=(const tarn_session&) = delete;
  // The model is released after this, by tarn_session_free.
  ~tarn_session() = default;

  const tarn_model* model;
  // Of draft tokens; released after the session that asks it.
  std::shared_ptr<const tarn_model> draft;
  tarn::Session session;
  // Of the text's options.
  int32_t (*cancel)(void*) = nullptr;
  void* user = nullptr;
};
