// Python's literals as JSON texts.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

/// Follows the texts and brackets of Python in a stream of bytes.
class PythonExtent {
 public:
  /// False for a closing bracket too many, and for more than kMaxJsonDepth
  /// levels.
  bool Feed(char byte);
  /// Outside all brackets and texts.
  bool Outside() const { return depth_ == 0 && quote_ == 0; }

 private:
  size_t depth_ = 0;
  char quote_ = 0;
  bool escaped_ = false;
};

/// The JSON text of a literal: a text in quotes of either sort, a number as
/// JSON writes it, True, False, None (or JSON's words), a list, a tuple (a
/// list), a dictionary with texts as keys. Nothing for what is none. O(bytes),
/// no recursion.
std::optional<std::string> JsonOfPython(std::string_view literal);

/// An argument of a call.
struct PythonArgument {
  std::string name;
  std::string_view value;  // not checked
};

/// `name=value, ...` without the brackets around them; a comma may come last.
/// Nothing where a name is missing, or for a bracket too many. O(bytes).
std::optional<std::vector<PythonArgument>> PythonArguments(
    std::string_view text);

}  // namespace tarn
