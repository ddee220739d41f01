"""Writes regexes.json: which texts Python's re.fullmatch takes, for patterns that mean the same in
ECMAScript. Texts are made from each pattern's own characters and by damaging those that match, so
that both answers are common. Needs nothing but Python; `python3 make_regexes.py` next to the file.
"""

import json
import pathlib
import random
import re

PATTERNS = [
    "",
    "a",
    "abc",
    "a|b",
    "a|bc|",
    "(a|b)c",
    "(?:a|b)*c",
    "a?b+c*",
    "a{3}",
    "a{2,}",
    "a{1,3}b",
    "(ab){2}",
    "(?:ab|cd){1,2}e",
    "a*?b+?c??",
    "[abc]",
    "[a-c]+",
    "[^a-c]*",
    "[a-cx-z]{2,4}",
    "[-a]",
    "[a-]",
    "[\\]\\[\\-\\\\]+",
    "[\\d_]+",
    "[^\\w]",
    "[\\s\\S]{2}",
    ".",
    ".*b",
    "a.c",
    "\\d+",
    "\\D+",
    "\\w+\\W\\w+",
    "\\s*a\\s*",
    "\\S+ \\S+",
    "\\.\\*\\+\\?\\(\\)\\[\\]\\{\\}\\|\\^\\$\\\\\\/",
    "\\t\\n\\r\\f\\v",
    "\\x41\\u00e9",
    "[\\x41-\\x43]",
    "\u00e9+",
    "[\u00e0-\u00ff]*z",
    "[\U0001f600-\U0001f64f]a?",
    "[^\u0000-\u007f]+",
    "\\d{4}-\\d{2}-\\d{2}",
    "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(?:\\.(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)){3}",
    "[A-Za-z_][A-Za-z0-9_]*",
    "[+-]?(?:\\d+\\.?\\d*|\\.\\d+)(?:[eE][+-]?\\d+)?",
    "#(?:[0-9a-fA-F]{3}){1,2}",
    "[^@ ]+@[^@ ]+\\.[a-z]{2,}",
    '"(?:[^"\\\\]|\\\\.)*"',
    "(?:a|ab)(?:c|bcd)(?:d*)",
    "(?:(?:a+)+)+b",
    "(?:a|b)*a(?:a|b){5}",
    "(?:x*)*y",
    "(?:|a)+b",
    "(?:a{0,2}b){2,3}",
    "((a)(b(c)?)?)?",
    "\\0",
    "a\\-b",
]


def texts_for(pattern: str, draw: random.Random) -> list[str]:
    letters = sorted(set(re.sub(r"\\.", "", pattern)) | set('ab c1_.-\n\u00e9\U0001f600A\\"'))
    compiled = re.compile(pattern, re.ASCII)
    pool = ["", "a", "b", "abc", "ab", "12", "1.5", "2024-01-31", "255.1.0.9", "a b", "\x00"]
    pool += ["x1", "#fff", "me@site.org", '"a\\"b"', "aaaaab", "ababab", "\u00e9", "\U0001f600a"]
    pool += [
        "aaa",
        "aa",
        "abab",
        "B",
        "\u00e0z",
        "a-b",
        "AB",
        "A\u00e9",
        "\t\n\r\f\v",
        ".*+?()[]{}|^$\\/",
        "-2.5e+10",
        "ab!cd",
        "ccc",
        "cde",
    ]
    for _ in range(400):
        pool.append("".join(draw.choice(letters) for _ in range(draw.randrange(1, 9))))
    good = [text for text in pool if compiled.fullmatch(text)]
    for text in list(good) * 3:
        at = draw.randrange(len(text) + 1)
        pool.append(text[:at] + draw.choice(letters) + text[at + draw.randrange(2) :])
        pool.append(text + draw.choice(good))
    good = [text for text in dict.fromkeys(pool) if compiled.fullmatch(text)]
    bad = [text for text in dict.fromkeys(pool) if not compiled.fullmatch(text)]
    draw.shuffle(good)
    draw.shuffle(bad)
    return good[:14] + bad[:14]


def main() -> None:
    draw = random.Random(41)
    rows = []
    for pattern in PATTERNS:
        compiled = re.compile(pattern, re.ASCII)
        texts = texts_for(pattern, draw)
        # \x0b to \x1f aside, the classes of both agree on ASCII; "." takes \r in Python alone.
        texts = [t for t in texts if not re.search("[\r\x1c-\x1f]", t) or "\\r" in pattern]
        rows.append(
            {
                "pattern": pattern,
                "accepted": [t for t in texts if compiled.fullmatch(t)],
                "rejected": [t for t in texts if not compiled.fullmatch(t)],
            }
        )
    path = pathlib.Path(__file__).with_name("regexes.json")
    path.write_text(json.dumps(rows, indent=0) + "\n")


if __name__ == "__main__":
    main()
