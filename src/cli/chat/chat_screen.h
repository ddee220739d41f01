// Answers on standard output as they come.
#pragma once

#include <string>
#include <string_view>

#include "cli/console/output.h"
#include "runtime/chat/thinking.h"

namespace tarn::cli {

/// Writes one answer after another. On a terminal thinking is dim, and control
/// characters of the model's text are not sent. One thread at a time.
class ChatScreen {
 public:
  explicit ChatScreen(bool hide_thinking);

  /// False once the reader is gone.
  bool Show(AnswerPart part, std::string_view bytes);
  /// Ends the answer with a newline.
  void EndAnswer();

 private:
  void Write(std::string_view bytes);
  void Begin(AnswerPart part);

  Payload payload_;
  Utf8Stream stream_;
  bool terminal_, hide_thinking_;
  bool dim_ = false;  // the present answer is at its thinking
};

}  // namespace tarn::cli
