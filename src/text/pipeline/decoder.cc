#include "text/pipeline/decoder.h"

#include <string_view>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/pipeline/replace.h"
#include "text/utf8.h"

namespace tarn {
namespace {

using Texts = std::vector<std::string>;
constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";

std::string StripEnds(std::string_view text, const DecoderStep& step) {
  for (int64_t i = 0; i < step.left && text.starts_with(step.content); ++i) {
    text.remove_prefix(step.content.size());
  }
  for (int64_t i = 0; i < step.right && text.ends_with(step.content); ++i) {
    text.remove_suffix(step.content.size());
  }
  return std::string(text);
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// A run of bytes becomes one text.
Texts JoinBytes(const Texts& texts, DecodedBytes form) {
  Texts out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    const bool broken =
        form == DecodedBytes::kAsText && ReplaceInvalidUtf8(run) != run;
    std::string text;
    for (size_t i = 0; broken && i < run.size(); ++i) {
      text += kReplacementCharacter;
    }
    out.push_back(broken ? text : run);
    run.clear();
  };
  for (const std::string& text : texts) {
    const int byte = ByteOfToken(text);
    if (byte >= 0) {
      run += static_cast<char>(byte);
      continue;
    }
    flush();
    out.push_back(text);
  }
  flush();
  return out;
}

Texts Joined(const Texts& texts) {
  std::string all;
  for (const std::string& text : texts) all += text;
  return {std::move(all)};
}

// What the step makes of one text; the steps that see all of them are apart.
std::string Decoded(const DecoderStep& step, std::string text, bool first) {
  using enum DecoderStep::Kind;
  switch (step.kind) {
    case kByteLevel: {
      auto bytes = AlphabetToBytes(text);
      return bytes ? *std::move(bytes) : std::move(text);
    }
    case kReplace:
      return Replaced(text, step.pattern, step.content);
    case kStrip:
      return StripEnds(text, step);
    case kMetaspace:
      return Replaced(text, step.pattern, first && step.left != 0 ? "" : " ");
    default:
      return text;
  }
}

// What a text's next part adds once the step has stripped its beginning.
std::string StripBeginning(const DecoderStep& step, std::string text,
                           DecodeProgress& progress) {
  if (progress.stripped == DecodeProgress::kDone) return text;
  progress.held += text;
  while (progress.stripped < step.left && !step.content.empty() &&
         progress.held.starts_with(step.content)) {
    progress.held.erase(0, step.content.size());
    ++progress.stripped;
  }
  const bool waits =
      progress.stripped < step.left && step.content.starts_with(progress.held);
  if (waits) return "";
  progress.stripped = DecodeProgress::kDone;
  return std::move(progress.held);
}

}  // namespace

int ByteOfToken(const std::string& text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = HexDigit(text[3]), low = HexDigit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string DecodeTokens(const std::vector<DecoderStep>& steps, Texts texts,
                         DecodedBytes bytes) {
  for (const DecoderStep& step : steps) {
    if (step.kind == DecoderStep::Kind::kByteFallback) {
      texts = JoinBytes(texts, bytes);
    } else if (step.kind == DecoderStep::Kind::kFuse) {
      texts = Joined(texts);
    } else {
      for (size_t i = 0; i < texts.size(); ++i) {
        texts[i] = Decoded(step, std::move(texts[i]), i == 0);
      }
    }
  }
  std::string out = std::move(Joined(texts)[0]);
  return bytes == DecodedBytes::kAsText ? ReplaceInvalidUtf8(out) : out;
}

void DecodeToken(const std::vector<DecoderStep>& steps, std::string text,
                 std::string& out) {
  DecodeProgress middle{.begun = true, .stripped = DecodeProgress::kDone};
  DecodeToken(steps, std::move(text), middle, out);
}

void DecodeToken(const std::vector<DecoderStep>& steps, std::string text,
                 DecodeProgress& progress, std::string& out) {
  bool fused = false;
  for (const DecoderStep& step : steps) {
    if (step.kind == DecoderStep::Kind::kFuse) {
      fused = true;
    } else if (step.kind == DecoderStep::Kind::kByteFallback) {
      const int byte = ByteOfToken(text);
      if (byte >= 0) text.assign(1, static_cast<char>(byte));
    } else if (step.kind == DecoderStep::Kind::kStrip && fused) {
      // The ends are those of the whole text.
      text = StripBeginning(step, std::move(text), progress);
    } else {
      text = Decoded(step, std::move(text), !progress.begun);
    }
  }
  progress.begun = true;
  out += text;
}

}  // namespace tarn
