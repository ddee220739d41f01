// Session files: what is loaded is written and loaded again, goes back to its
// marks and draws. Wrong hashes are put right, as in the target of states.
#include <string>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "fuzz/tiny_model.h"
#include "runtime/session/session_file.h"

namespace tarn::fuzz {
namespace {

Result<Session> Load(const LoadedModel& model, const std::string& file) {
  // A copy of exactly these bytes: reading past them is found.
  const std::vector<uint8_t> exact(file.begin(), file.end());
  return LoadSession(model, exact);
}

void DrawSome(Session& session) {
  for (int i = 0; i < 4; ++i) {
    session.Consume();
    if (session.text() == nullptr || session.text()->ended()) return;
    session.Draw();
  }
}

void UseSession(const LoadedModel& model, Session session) {
  std::string file;
  StringSink sink(file);
  SaveSession(session, sink);
  const Result<Session> again = Load(model, file);
  Require(again.ok(), "a session that cannot be read again");
  Require(again.value() == session, "another session is read again");
  ++Accepted();
  Session fork = session.Fork(3);
  Try([&] { DrawSome(fork); });
  Try([&] { DrawSome(session); });
  std::vector<std::string> names;
  for (const auto& [name, mark] : session.marks()) names.push_back(name);
  for (const std::string& name : names) {
    Try([&] {
      session.RollBackTo(name);
      DrawSome(session);
    });
  }
  Try([&] { session.RollBack(session.position() / 2); });
}

void LoadFile(const LoadedModel& model, std::string file) {
  for (int seals = 0;; ++seals) {
    Result<Session> loaded = Load(model, file);
    if (loaded.ok()) return UseSession(model, std::move(loaded).Take());
    CheckRefusal(loaded.error());
    if (seals == 4 || !Reseal(loaded.error(), file)) return;
  }
}

}  // namespace
}  // namespace tarn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tarn;
  static const fuzz::TinyModel model = fuzz::OpenTinyModel();
  fuzz::Try([&] {
    fuzz::LoadFile(model.loaded, std::string(fuzz::TextOf(data, size)));
  });
  return 0;
}
