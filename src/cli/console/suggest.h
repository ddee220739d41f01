// "Did you mean ...?" for words the command line does not know.
#pragma once

#include <string>
#include <vector>

namespace tarn::cli {

/// Insertions, deletions, replacements and swaps of neighbours that turn one
/// word into the other. O(|a| |b|).
size_t EditDistance(const std::string& a, const std::string& b);

/// "; did you mean 'WORD'?" for the nearest of `known` if it is near enough (at
/// most a third of the longer word's letters differ), else "".
std::string DidYouMean(const std::string& word,
                       const std::vector<std::string>& known);

}  // namespace tarn::cli
