// The counters of all parts as Prometheus' text.
#pragma once

#include <string>

#include "serve/api/service.h"

namespace tarn::serve {

/// Waits for the schedulers' threads to give the counts of their sessions.
std::string MetricsText(const Service& service);

}  // namespace tarn::serve
