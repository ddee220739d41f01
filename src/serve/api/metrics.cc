#include "serve/api/metrics.h"

#include <sstream>
#include <string>
#include <vector>

namespace tarn::serve {
namespace {

// A label's value: quotes, backslashes and line ends are escaped.
std::string LabelValue(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return escaped;
}

// One metric, a line for each model.
class MetricsWriter {
 public:
  explicit MetricsWriter(const Service& service) : service_(service) {
    for (const auto& model : service.models()) {
      scheduler_.push_back(model->scheduler->counts());
      sessions_.push_back(model->sessions->published());
      // For the next time: who asks now does not wait for a step of the model.
      SessionStore* sessions = model->sessions.get();
      model->scheduler->Post([sessions] { sessions->Publish(); });
    }
  }

  template <typename F>
  void Add(const char* name, const char* type, const char* help, F value) {
    text_ << "# HELP tarn_" << name << " " << help << "\n# TYPE tarn_" << name
          << " " << type << "\n";
    for (size_t i = 0; i < scheduler_.size(); ++i) {
      text_ << "tarn_" << name << "{model=\""
            << LabelValue(service_.models()[i]->name) << "\"} "
            << value(scheduler_[i], sessions_[i]) << "\n";
    }
  }
  std::string text() const { return text_.str(); }

 private:
  const Service& service_;
  std::vector<SchedulerCounts> scheduler_;
  std::vector<SessionCounts> sessions_;
  std::ostringstream text_;
};

}  // namespace

std::string MetricsText(const Service& service) {
  using S = SchedulerCounts;
  using H = SessionCounts;
  MetricsWriter out(service);
  const auto counter = [&](const char* name, const char* help, auto value) {
    out.Add(name, "counter", help, value);
  };
  const auto gauge = [&](const char* name, const char* help, auto value) {
    out.Add(name, "gauge", help, value);
  };
  counter("requests_total", "Texts asked for.",
          [](const S& s, const H&) { return s.requests; });
  counter("requests_rejected_total", "Requests that found the queue full.",
          [](const S& s, const H&) { return s.rejected; });
  counter("requests_cancelled_total", "Texts whose client went away.",
          [](const S& s, const H&) { return s.cancelled; });
  counter("requests_failed_total", "Texts that ended with an error.",
          [](const S& s, const H&) { return s.failed; });
  counter("prompt_tokens_total", "Tokens of prompts.",
          [](const S& s, const H&) { return s.prompt_tokens; });
  counter("prompt_tokens_computed_total",
          "Tokens of prompts that were not in a session or the prefix cache.",
          [](const S& s, const H&) { return s.prompt_computed; });
  counter("text_tokens_total", "Tokens written.",
          [](const S& s, const H&) { return s.text_tokens; });
  counter("draft_tokens_total", "Draft tokens read (--speculate).",
          [](const S& s, const H&) { return s.drafted; });
  counter("draft_tokens_accepted_total", "Draft tokens that were right.",
          [](const S& s, const H&) { return s.accepted; });
  counter("steps_total", "Calls of the model.",
          [](const S& s, const H&) { return s.steps; });
  counter("step_sequences_total", "Sequences in all calls of the model.",
          [](const S& s, const H&) { return s.step_rows; });
  counter("model_seconds_total", "Time within the model.",
          [](const S& s, const H&) { return s.model_ms / 1000; });
  gauge("requests_running", "Texts being written or prompts being read.",
        [](const S& s, const H&) { return s.running; });
  gauge("requests_waiting", "Requests in the queue.",
        [](const S& s, const H&) { return s.waiting; });
  counter("prefix_cache_lookups_total", "Prompts looked up.",
          [](const S& s, const H&) { return s.cache.lookups; });
  counter("prefix_cache_hits_total", "Prompts with a known beginning.",
          [](const S& s, const H&) { return s.cache.hits; });
  counter("prefix_cache_saved_tokens_total", "Tokens that were not read again.",
          [](const S& s, const H&) { return s.cache.saved_tokens; });
  counter("prefix_cache_evicted_total", "States that made room for others.",
          [](const S& s, const H&) { return s.cache.evicted; });
  gauge("prefix_cache_states", "States kept.",
        [](const S& s, const H&) { return s.cache_states; });
  gauge("prefix_cache_bytes", "Memory of the prefix cache.",
        [](const S& s, const H&) { return s.cache_bytes; });
  gauge("sessions_live", "Sessions in memory.",
        [](const S&, const H& h) { return h.live; });
  gauge("sessions_parked", "Files of parked sessions.",
        [](const S&, const H& h) { return h.parked; });
  gauge("session_bytes", "Memory of sessions.",
        [](const S&, const H& h) { return h.bytes; });
  gauge("session_parked_bytes", "Bytes of parked sessions.",
        [](const S&, const H& h) { return h.parked_bytes; });
  counter("sessions_created_total", "Sessions created.",
          [](const S&, const H& h) { return h.created; });
  counter("sessions_forked_total", "Forks.",
          [](const S&, const H& h) { return h.forked; });
  counter("session_parks_total", "Sessions written to files.",
          [](const S&, const H& h) { return h.parks; });
  counter("session_restores_total", "Sessions read from files.",
          [](const S&, const H& h) { return h.restores; });
  counter("session_rollbacks_total", "Rollbacks.",
          [](const S&, const H& h) { return h.rollbacks; });
  counter("session_replayed_tokens_total", "Tokens that rollbacks read again.",
          [](const S&, const H& h) { return h.replayed_tokens; });
  return out.text();
}

}  // namespace tarn::serve
