"""Tokenizers for tests: three models of some 2,000 tokens, trained by the `tokenizers`
package (tests/golden/make_tokenizers.py), with the steps of published tokenizers around
them: one tokenizer.json for each case."""

import copy
import json
import pathlib

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "tokenizers"
BAR = "\u2581"
ENDING = r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
CL100K = rf"{SHORT}|{BEFORE}\p{{L}}+|{ENDING}"
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": CL100K,
    "new_cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "qwen2": CL100K.replace("{1,3}", ""),
    "qwen35": CL100K.replace("{1,3}", "")
    .replace(r"?\p{L}+", r"?[\p{L}\p{M}]+")
    .replace(r" ?[^\s\p{L}\p{N}]+", r" ?[^\s\p{L}\p{M}\p{N}]+"),
    "o200k": f"{BEFORE}{UPPER}*{LOWER}+{SHORT}?|{BEFORE}{UPPER}+{LOWER}*{SHORT}?|"
    + ENDING.replace(r"[\r\n]*|", r"[\r\n/]*|"),
}
PATTERNS["tekken"] = PATTERNS["o200k"].replace(f"{SHORT}?", "").replace("{1,3}", "")
NO_HAN = r"&&[^\p{Han}]]"
PATTERNS["kimi"] = (
    r"[\p{Han}]+|"
    + "|".join(
        f"{BEFORE}{UPPER[:-1]}{NO_HAN}{first}{LOWER[:-1]}{NO_HAN}{then}{SHORT}?"
        for first, then in ("*+", "+*")
    )
    + f"|{ENDING}"
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": BAR}
RESTORE = {"type": "Replace", "pattern": {"String": BAR}, "content": " "}
BYTES = [RESTORE, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def sequence(key: str, steps: list) -> dict:
    return {"type": "Sequence", key: steps}


def byte_level(use_regex: bool = False) -> dict:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def split(pattern, behavior="Isolated", invert=False, kind="Regex") -> dict:
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme: str, cut: bool) -> dict:
    return {"type": "Metaspace", "replacement": BAR, "prepend_scheme": scheme, "split": cut}


def added(id: int, content: str, special: bool = True, **flags) -> dict:
    names = ("single_word", "lstrip", "rstrip", "normalized")
    return {
        "id": id,
        "content": content,
        **{n: flags.get(n, False) for n in names},
        "special": special,
    }


def template(before: dict, after: dict) -> dict:
    def piece(token):
        return {"SpecialToken": {"id": token, "type_id": 0}}

    text = {"Sequence": {"id": "A", "type_id": 0}}
    ids = {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in {**before, **after}.items()}
    single = [*map(piece, before), text, *map(piece, after)]
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": ids}


def _whole(
    model: dict, tokens: list, pre=None, decoder=None, normalizer=None, post=None, **changes
) -> dict:
    model = {**copy.copy(model), **changes}
    root = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens}
    root |= {
        "normalizer": normalizer,
        "pre_tokenizer": pre,
        "post_processor": post,
        "decoder": decoder,
    }
    return root | {"model": model}


def all_cases(models: dict) -> dict[str, dict]:
    """Name of the case: its tokenizer.json. models: as MODELS names them."""
    made = {}
    model = models["bytes"]
    size = len(model["vocab"])
    bos, eos = {"<s>": size}, {"</s>": size + 1}
    tokens = [
        added(size, "<s>"),
        added(size + 1, "</s>", rstrip=True),
        added(size + 2, "<x>", False, lstrip=True),
    ]
    tokens += [
        added(size + 3, "fox", False, single_word=True, normalized=True),
        added(size + 4, "  ", False),
    ]

    def bytes_case(name, pre, **more):
        made[name] = _whole(model, tokens, pre, byte_level(True), **more)

    bytes_case("byte_level", byte_level(True), normalizer={"type": "NFC"})
    bytes_case("whole", byte_level(False))
    for name, pattern in PATTERNS.items():
        bytes_case(name, sequence("pretokenizers", [split(pattern), byte_level()]))
    removed = split(PATTERNS["o200k"], "Removed", True)
    bytes_case("o200k_removed", sequence("pretokenizers", [removed, byte_level()]))
    cut = sequence("pretokenizers", [split(CL100K), byte_level()])
    post = sequence("processors", [byte_level(), template(bos, eos)])
    bytes_case("llama3", cut, ignore_merges=True, post=post)
    bytes_case("deepseek", sequence("pretokenizers", [*map(split, DEEPSEEK), byte_level()]))
    digits = {"type": "Digits", "individual_digits": True}
    bytes_case("starcoder", sequence("pretokenizers", [digits, byte_level(True)]))
    falcon = [{"type": "Punctuation", "behavior": "Contiguous"}, byte_level(True)]
    falcon += [{"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")]
    bytes_case("falcon", sequence("pretokenizers", falcon))
    forms = [{"type": t} for t in ("NFKC", "Lowercase")] + [
        {"type": "Strip", "strip_left": True, "strip_right": True}
    ]
    bytes_case("nfkc_lower", byte_level(True), normalizer=sequence("normalizers", forms))
    bytes_case("nfd", byte_level(True), normalizer={"type": "NFD"})
    bytes_case("nfkd", byte_level(True), normalizer={"type": "NFKD"})

    model = models["characters"]
    start, end = model["vocab"]["<s>"], model["vocab"]["</s>"]
    unknown, size = model["vocab"]["<unk>"], len(model["vocab"])
    named = [added(unknown, "<unk>"), added(start, "<s>"), added(end, "</s>")]
    for content, normalized in (("<y>", True), ("\n\n", False)):
        known = model["vocab"].get(content)  # the trainer may have seen it
        named.append(added(size if known is None else known, content, False, normalized=normalized))
        size += known is None
    prepend = sequence("normalizers", [{"type": "Prepend", "prepend": BAR}, REPLACE])
    strip = sequence("decoders", [*BYTES, STRIP])
    post = template({"<s>": start}, {"</s>": end})

    def spaces_case(name, pre, decoder=strip, **more):
        made[name] = _whole(model, named, pre, decoder, **more)

    spaces_case("llama2", None, normalizer=prepend, post=post)
    gemma = split(" ", "MergedWithPrevious", kind="String")
    spaces_case("gemma", gemma, sequence("decoders", BYTES), normalizer=REPLACE, post=post)
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            # Fuse comes last here: the marks of words are gone by then.
            decoder = sequence(
                "decoders", [metaspace(scheme, cut), {"type": "ByteFallback"}, {"type": "Fuse"}]
            )
            spaces_case(
                f"metaspace_{scheme}{'_split' if cut else ''}", metaspace(scheme, cut), decoder
            )
    spaces_case("unknown", metaspace("always", True), byte_fallback=False, fuse_unk=False)
    spaces_case("fused", metaspace("always", False), byte_fallback=False, fuse_unk=True)
    words = sequence("pretokenizers", [{"type": "WhitespaceSplit"}, metaspace("first", True)])
    spaces_case("words", words, metaspace("first", True))
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext"):
        spaces_case(
            f"split_{behavior}", split("e", behavior, kind="String"), sequence("decoders", BYTES)
        )
    signs = [
        {"type": "Punctuation", "behavior": "Isolated"},
        {"type": "Digits", "individual_digits": False},
    ]
    spaces_case("signs", sequence("pretokenizers", [*signs, metaspace("never", True)]))

    model = models["unigram"]
    ids = {token: id for id, (token, _) in enumerate(model["vocab"])}
    named = [added(ids[t], t) for t in ("<unk>", "<s>", "</s>")]
    post = template({}, {"</s>": ids["</s>"]})

    def unigram_case(name, pre, decoder, **more):
        made[name] = _whole(model, named, pre, decoder, **more)

    marks = metaspace("always", True)
    unigram_case("unigram", marks, marks, post=post)
    unigram_case("unigram_bytes", metaspace("always", False), strip, byte_fallback=True)
    lower = sequence("normalizers", [{"type": "NFKC"}, {"type": "Lowercase"}])
    unigram_case(
        "unigram_words",
        sequence("pretokenizers", [{"type": "WhitespaceSplit"}, marks]),
        marks,
        normalizer=lower,
    )
    return made


def without_special(root: dict) -> dict:
    """The same ids with no special token that a text could name. The package keeps them
    from a text by `encode_special_tokens`, but a Unigram model lists them as pieces and
    finds them again; tarn does not, as a user's text must not become one."""
    if root["model"].get("type") != "Unigram":
        return root
    special = {token["content"] for token in root["added_tokens"] if token["special"]}
    vocab = [
        [f"\0{text}" if text in special else text, score] for text, score in root["model"]["vocab"]
    ]
    rest = [token for token in root["added_tokens"] if not token["special"]]
    return root | {
        "added_tokens": rest,
        "post_processor": None,
        "model": root["model"] | {"vocab": vocab},
    }


def load_models() -> dict:
    return {
        name: json.loads((GOLDEN / f"{name}.json").read_text())
        for name in ("bytes", "characters", "unigram")
    }
