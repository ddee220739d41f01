"""Writes tests/golden/tokenizers: three models that the `tokenizers` package trained,
strings, and for every case of tests/tokenizers/cases.py hashes of the ids and texts that
the package gives for them. src/text/pipeline/pipeline_golden_test.cc reads it without Python.

    python tests/golden/make_tokenizers.py

The trainers do not give the same models twice: all files change together.
"""

import json
import pathlib
import sys
from collections import Counter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tokenizers"))

from cases import BAR, CL100K, GOLDEN, all_cases, load_models, without_special  # noqa: E402
from strings import make_strings  # noqa: E402
from tokenizers import Regex, Tokenizer, __version__, decoders, models, pre_tokenizers, trainers  # noqa: E402

TOKENS = 2256
BLOCK = 10  # strings that share a hash
NAMES = ["<unk>", "<s>", "</s>"]
FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]


def train(tokenizer, trainer, corpus):
    tokenizer.train_from_iterator(corpus, trainer)
    return json.loads(tokenizer.to_str())["model"]


def make_models(corpus: list[str]) -> dict:
    tokenizer = Tokenizer(models.BPE())
    cut = pre_tokenizers.Split(Regex(CL100K), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [cut, pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=TOKENS, initial_alphabet=alphabet, show_progress=False)
    made = {"bytes": train(tokenizer, trainer, corpus)}

    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=BAR)
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS, special_tokens=NAMES + FALLBACK, limit_alphabet=200, show_progress=False
    )
    made["characters"] = train(tokenizer, trainer, corpus)

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=BAR)
    tokenizer.decoder = decoders.Metaspace(replacement=BAR)
    trainer = trainers.UnigramTrainer(
        vocab_size=TOKENS, special_tokens=NAMES + FALLBACK, unk_token="<unk>", show_progress=False
    )
    # Rare characters stay unknown: the trainer keeps every one it sees.
    count = Counter("".join(corpus))
    model = train(tokenizer, trainer, [t for t in corpus if all(count[c] > 20 for c in t)])
    # It also lists texts again that are special tokens already.
    seen = set()
    model["vocab"] = [e for e in model["vocab"] if not (e[0] in seen or seen.add(e[0]))]
    return made | {"unigram": model}


def results(root, strings):
    """For each string the ids as plain text, with all special tokens, and two texts."""
    tokenizer = Tokenizer.from_str(json.dumps(without_special(root)))
    tokenizer.encode_special_tokens = True
    plain = [e.ids for e in tokenizer.encode_batch(strings, add_special_tokens=False)]
    tokenizer = Tokenizer.from_str(json.dumps(root))
    special = [e.ids for e in tokenizer.encode_batch(strings)]
    texts = [tokenizer.decode(ids, skip_special_tokens=False) for ids in plain]
    kept = [tokenizer.decode(ids) for ids in special]
    return list(zip(plain, special, texts, kept))


def fnv(data: bytes, value: int) -> int:
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value


def hash_block(block) -> str:
    value = 0xCBF29CE484222325
    for plain, special, text, kept in block:
        for ids in (plain, special):
            value = fnv(b"".join(id.to_bytes(4, "little") for id in ids) + b"|", value)
        for part in (text, kept):
            value = fnv(part.encode() + b"|", value)
    return f"{value >> 32:08x}"


def dump(path: pathlib.Path, value) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    corpus = [text for text in make_strings(6000, 3) if not any(name in text for name in NAMES)]
    for name, model in make_models(corpus).items():
        dump(GOLDEN / f"{name}.json", model)
    strings = make_strings()
    made = {}
    for name, root in all_cases(load_models()).items():
        got = results(root, strings)
        blocks = [got[i : i + BLOCK] for i in range(0, len(got), BLOCK)]
        rest = {key: value for key, value in root.items() if key != "model"}
        vocab = root["model"]["vocab"]
        rest["file"] = (
            "unigram" if isinstance(vocab, list) else "characters" if "<unk>" in vocab else "bytes"
        )
        rest["model"] = {k: v for k, v in root["model"].items() if k not in ("vocab", "merges")}
        shown = {
            i: {"plain": got[i][0], "special": got[i][1], "text": got[i][2]} for i in (100, 1000)
        }
        made[name] = {"root": rest, "shown": shown, "hashes": "".join(map(hash_block, blocks))}
    dump(GOLDEN / "strings.json", strings)
    dump(GOLDEN / "cases.json", {"tokenizers": __version__, "block": BLOCK, "cases": made})


if __name__ == "__main__":
    main()
