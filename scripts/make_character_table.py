"""Writes src/text/unicode/character_table.inc: what each code point is to a tokenizer.

The classes come from the `tokenizers` package itself, not from a file of Unicode: its
regular expressions, its Digits and Punctuation steps and its single-word rule use tables
of different versions (16.0 for the expressions of 0.23), and token ids follow them.

    python scripts/make_character_table.py > src/text/unicode/character_table.inc
"""

import sys

from tokenizers import AddedToken, Regex, Tokenizer, __version__
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Digits, Punctuation, Split

POINTS = [p for p in range(0x110000) if not 0xD800 <= p <= 0xDFFF]
ALL = "".join(map(chr, POINTS))
# In the order of UnicodeCategory (src/text/unicode/unicode.h), after kOther.
CATEGORIES = [r"\p{Lu}|\p{Lt}", r"\p{Ll}", r"\p{Lm}|\p{Lo}", r"\p{M}", r"\p{N}"]
CATEGORIES += [r"\p{P}", r"\p{S}", r"\s"]
WORD, DIGIT, PUNCTUATION, HAN = 16, 32, 64, 128


def matches(pattern: str) -> set[int]:
    pieces = Split(Regex(pattern), "removed", invert=True).pre_tokenize_str(ALL)
    return {ord(character) for piece, _ in pieces for character in piece}


def isolated(step) -> set[int]:
    """Code points that the step makes a piece of, among letters."""
    pieces = step.pre_tokenize_str("".join("aa" + c for c in ALL if c != "a"))
    return {ord(piece) for piece, _ in pieces if len(piece) == 1}


def in_word() -> set[int]:
    """Code points next to which a single-word token is not found."""
    tokenizer = Tokenizer(WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([AddedToken("X", single_word=True, normalized=False)])
    text = "".join(f"X{c} " for c in ALL if c != "X")
    found = {b for id, (b, _) in zip(*_pairs(tokenizer.encode(text))) if id == 1}
    points = [p for p in POINTS if p != ord("X")]
    return {p for i, p in enumerate(points) if 3 * i not in found} | {ord("X")}


def _pairs(encoding):
    return encoding.ids, encoding.offsets


def main() -> None:
    flags = dict.fromkeys(POINTS, 0)
    for category, pattern in enumerate(CATEGORIES, 1):
        for point in matches(pattern):
            flags[point] = category
    for bit, points in [
        (WORD, in_word()),
        (DIGIT, isolated(Digits(individual_digits=True))),
        (PUNCTUATION, isolated(Punctuation("isolated"))),
        (HAN, matches(r"\p{Han}")),
    ]:
        for point in points:
            flags[point] |= bit
    runs = [(0, flags[0])]
    for point in POINTS:
        # Runs end at multiples of 256, where the index of runs points to.
        if flags[point] != runs[-1][1] or point % 256 == 0 and point:
            runs.append((point, flags[point]))
    print(f"// Written by scripts/make_character_table.py with tokenizers {__version__}.")
    print("// First code point of a run << 8 | its flags (unicode.cc).")
    line = ""
    pages = 0
    last = None
    for first, flag in runs:
        # A page that continues the run before it needs no entry.
        if first % 256 == 0 and flag == last:
            continue
        last = flag
        pages += 1
        item = f"0x{first << 8 | flag:X},"
        if len(line) + len(item) > 79:
            print(line)
            line = ""
        line += item
    print(line)
    print(f"{pages} runs", file=sys.stderr)


if __name__ == "__main__":
    main()
