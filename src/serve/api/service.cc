#include "serve/api/service.h"

#include <chrono>
#include <utility>

#include "core/text.h"

namespace tarn::serve {
namespace {

int64_t SecondsNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Their sources are made for each session.
SchedulerOptions WithDrafts(SchedulerOptions options, const Drafts& drafts) {
  if (!drafts.none()) {
    options.drafts = [&drafts] { return drafts.Make(); };
  }
  return options;
}

}  // namespace

ServedModel::ServedModel(std::string name, LoadedModel model,
                         std::optional<ChatFormat> format,
                         const ServiceOptions& options)
    : name(std::move(name)),
      loaded(std::move(model)),
      format(std::move(format)),
      ends(this->format ? TurnEndsOf(*this->format, loaded.tokenizer)
                        : TurnEnds{}),
      created(SecondsNow()),
      options(options),
      drafts(Drafts::Open(options.speculate, loaded, loaded.model.options())
                 .Take()),
      constraints(std::make_unique<ConstraintCache>(loaded.tokenizer)),
      sessions(std::make_unique<SessionStore>(
          loaded, options.scheduler.snapshots, options.sessions)),
      scheduler(std::make_unique<Scheduler>(
          loaded, WithDrafts(options.scheduler, drafts))) {}

NoSuchModel::NoSuchModel(const std::string& name)
    : Error(ErrorCode::kArgument, "model", "the name of a model that is served",
            Quoted(name.substr(0, 128))) {}

Service::Service(std::vector<std::unique_ptr<ServedModel>> models)
    : models_(std::move(models)) {}

Service::~Service() { work_.Finish(); }

void Service::Settle() {
  work_.Finish();
  for (const auto& model : models_) {
    model->scheduler->CancelAll();
    model->scheduler->WaitIdle();
  }
}

ServedModel& Service::Find(const std::optional<std::string>& name) const {
  for (const auto& model : models_) {
    if (name && model->name == *name) return *model;
  }
  if (models_.size() == 1) return *models_.front();
  throw NoSuchModel(name.value_or(""));
}

}  // namespace tarn::serve
