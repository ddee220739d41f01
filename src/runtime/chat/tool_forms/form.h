// The forms in which models write calls of tools, as rows of a table.
#pragma once

#include <array>
#include <string_view>

namespace tarn {

/// A row of the table. Texts that are empty are not used.
struct ToolCallForm {
  std::string_view name;
  /// Texts of a template that writes the form: any of them, and `with`.
  std::array<std::string_view, 3> shown_by{};
  std::string_view with{};

  enum class Body {
    kObjects,   // {"name": ..., "arguments": {...}}, one, several or a list
    kNamed,     // a name, a mark, {...}
    kTagged,    // a name and parameters between tags
    kPythonic,  // [name(parameter=value, ...), ...]
  } body = Body::kObjects;
  /// That begin calls.
  std::array<std::string_view, 2> marks{};
  std::string_view end{};  // after the last call

  /// How calls are written where they are forced (forced_calls.h), as templates
  /// do: open, for each call before, its name, middle, its arguments and after,
  /// with `between` between calls, close.
  struct Written {
    std::string_view open{}, before{}, middle{}, after{}, between{}, close{};
  } written{};

  struct Objects {
    /// An answer that begins with '{' may be a call of a function that the
    /// tools have.
    bool without_mark = false;
    bool semicolons = false;                   // between calls
    std::string_view arguments = "arguments";  // the key, as written
  } objects{};

  struct Named {
    std::string_view call{};  // before each name; empty: the mark stands there
    std::string_view arguments{};             // between name and arguments
    std::array<std::string_view, 2> after{};  // after the arguments
    std::string_view name_after{};  // what of the name comes before this is not
    std::string_view name_until{};  // of it, nor what comes after this
    bool indexed = false;           // "functions.name:0" is name
  } named{};

  struct Tagged {
    std::string_view function{};  // before the name; empty: the mark is
    std::string_view name_end{};  // empty: white space, or a tag
    std::string_view key{}, key_end{};
    std::string_view value{};  // before it; empty: key_end is
    std::string_view value_end{};
    std::string_view call_end{};
    bool own_lines = false;  // a value's first and last line break are markup
  } tagged{};
};

}  // namespace tarn
