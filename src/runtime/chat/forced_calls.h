// Answers that must be calls of tools, as grammars.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/chat/tool_calls.h"

namespace tarn {

struct ForcedCalls {
  /// The function to call; "": any of the tools.
  std::string function = {};
  /// More than one call, as many as the model writes.
  bool several = false;
  /// The answer begins within its thinking, which comes before the calls.
  bool thinks = false;
};

/// The source of a grammar (GrammarKind::kParts) whose texts are such answers,
/// written as the form's templates write them: the splitter of the form finds
/// the calls, whose arguments fit the schemas. `tools`: a list as
/// ToolCallSplitter takes it, of which descriptions are left out; `where`: its
/// name in errors. FormatError names the tool, and what of its parameters a
/// form cannot write. What the schemas themselves may say Grammar::FromParts
/// checks. O(tools).
std::string ForcedCallsGrammar(const ToolCallForm& form,
                               const nlohmann::ordered_json& tools,
                               const ForcedCalls& forced,
                               const std::string& where);

}  // namespace tarn
