"""Strings that tell tokenizers apart: scripts with marks, digits of other scripts,
contractions, white space and line ends, emoji, code, decomposed text, special tokens."""

import random
import unicodedata

WORDS = """the quick brown Fox jumps OVER lazy dogs don't WE'LL I'm it's they've HE'D you're
naïve café Ångström Straße İstanbul ǅungla ﬁne Ωmega λόγος Привет МИР ёлка Ґанок Հայերեն
שלום עִבְרִית العربية مُحَمَّد فارسی اردو हिन्दी क्षत्रिय বাংলা ਪੰਜਾਬੀ ગુજરાતી தமிழ் తెలుగు ಕನ್ನಡ
മലയാളം සිංහල ไทยภาษา ລາວ བོད་ཡིག မြန်မာ ქართული አማርኛ ខ្មែរ ᠮᠣᠩᠭᠣᠯ 中文字符 日本語テキスト ひらがな カタカナ ﾊﾝｶｸ
한국어 조선말 ᄒᆞᆫ 龦 〇 々 Ꭰꮳ ᏣᎳᎩ 𐐨𐐀 𝒳𝕐 ａＢｃ Ǆ ſtop naı̈ve Việt Nam tiếng ʰʷ ª º ⅷ Ⅻ""".split()
DIGITS = "0 7 42 123 1234 12345 3.14 1e9 ٣٤٥ १२३४ ৩৪ ๑๒๓ 一二三 ²³ ½ ⅓ ⑨ Ⅳ １２３ 𝟗𝟘𝟙 ㊿ 0x1F 1,000".split()
ENDINGS = [
    "s",
    "t",
    "re",
    "ve",
    "m",
    "ll",
    "d",
    "S",
    "T",
    "RE",
    "Ve",
    "M",
    "lL",
    "D",
    "ſ",
    "x",
    "l",
]
QUOTES = ["'", "\u2019", "`", "\u02bc", "''", " '"]
SPACES = [
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    " \n",
    "\n ",
    " \n \n  ",
    "\u00a0",
    "\u3000",
]
SPACES += [
    "\u2028",
    "\u2009 ",
    "\x0b",
    "\x0c",
    "\x85",
    "\u200b",
    "\x1c",
    "\ufeff",
    "\u180e",
    "\t\t ",
    " " * 24,
]
EMOJI = "😀 👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 ❤️ ☕ ✈︎ 1️⃣ 🧑🏿‍🚀".split()
CODE = [
    "def f(x):\n    return x**2\n",
    "if (a != b) { c += d[i]; }",
    "</div>\n",
    "x->y::z<T>&&",
    "#include <a.h>",
]
CODE += [
    "a/b//c",
    "...",
    "---",
    "!!!\n\n",
    "(!?)",
    "\\n\\t",
    "$x_1",
    "@user #tag",
    "https://a.bc/d?e=f&g",
    "{}/\n/",
]
SIGNS = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + list(
    "¡¿«»—–…“”„†•€£¥©®°±×÷√∑∞≠←→①■♥、。！？「」·؟।᠎۝"
)
MARKS = [
    "\u0301",
    "\u0308",
    "\u0327",
    "\u093f",
    "\u0e31",
    "\u20dd",
    "\u0670",
    "\u3099",
    "\U00011938"[:0],
]
SPECIAL = [
    "<s>",
    "</s>",
    "<unk>",
    "<bos>",
    "<eos>",
    "<pad>",
    "<|endoftext|>",
    "<|im_start|>",
    "<|eot_id|>",
]
SPECIAL += [
    "<|begin_of_text|>",
    "<｜begin▁of▁sentence｜>",
    "<start_of_turn>",
    "<0x41>",
    "▁",
    "▁▁a",
    " ▁",
    "<mask>",
    "<x>",
    "<y>",
    " <y> ",
]


def _anything(rng: random.Random) -> str:
    """An assigned character from anywhere, older than the package's normal forms."""
    while True:
        point = rng.choice((0x250, 0x2000, 0x3000, 0x10000, 0x20000))
        character = chr(rng.randrange(point))
        if (
            not 0xD800 <= ord(character) <= 0xDFFF
            and unicodedata.ucd_3_2_0.category(character) != "Cn"
        ):
            return character


def _part(rng: random.Random) -> str:
    choice = rng.randrange(12)
    if choice < 3:
        return rng.choice(WORDS)
    if choice == 3:
        return rng.choice(DIGITS)
    if choice == 4:
        return rng.choice(WORDS) + rng.choice(QUOTES) + rng.choice(ENDINGS)
    if choice == 5:
        return rng.choice(EMOJI) + rng.choice(["", *MARKS])
    if choice == 6:
        return rng.choice(CODE)
    if choice == 7:
        return "".join(rng.choice(SIGNS) for _ in range(rng.randrange(1, 4)))
    if choice == 8:
        return unicodedata.normalize("NFD", rng.choice(WORDS)) + rng.choice(MARKS)
    if choice == 9:
        return "".join(_anything(rng) for _ in range(rng.randrange(1, 5)))
    if choice == 10:
        return rng.choice(SPECIAL) if rng.randrange(3) == 0 else rng.choice(WORDS).upper()
    return rng.choice(WORDS).title()


def make_strings(count: int = 2000, seed: int = 1) -> list[str]:
    """A pure function of its arguments: as Python's random module, on every machine."""
    rng = random.Random(seed)
    strings = ["", " ", "\n", "  ", "a", " a", "a ", "a\n", " \n ", "'s", "'S", "'ſ"]
    while len(strings) < count:
        parts = [rng.choice(SPACES)] if rng.randrange(4) == 0 else []
        for _ in range(rng.randrange(1, 14)):
            parts.append(_part(rng))
            for _ in range(rng.choice((0, 0, 1, 1, 1, 1, 2, 3))):
                parts.append(" " if rng.randrange(3) else rng.choice(SPACES))
        strings.append("".join(parts))
    return strings


def make_long(most: int = 1 << 20) -> list[str]:
    """Lines of `most` bytes of words and of anything, and runs of one unit, which are
    shorter: the package takes minutes for longer ones."""
    line = " ".join(WORDS) + " "
    texts = [
        line * (most // len(line.encode())),
        "".join(make_strings(6000, 7)).encode()[:most].decode(errors="ignore"),
    ]
    units = ("a", " ", "\n", "aB", "é", "中", "1", ".", "\u0301")
    return texts + [unit * (most // 16 // len(unit.encode())) for unit in units]
