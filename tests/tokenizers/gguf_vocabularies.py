"""Vocabularies as GGUF files, written by gguf-py as llama.cpp's converter writes them
(conversion/base.py), and the tokenizer.json that says the same. Imports gguf: for test files
that skip first."""

import copy
import heapq
import re

import gguf
from cases import BAR

TYPES = gguf.TokenType
# The splitter's name for each case of cases.py that has one.
PRE = {
    "byte_level": "gpt-2",
    "cl100k": "dbrx",
    "llama3": "llama-bpe",
    "qwen2": "qwen2",
    "qwen35": "qwen35",
    "o200k": "gpt-4o",
    "tekken": "tekken",
    "kimi": "kimi-k2",
    "deepseek": "deepseek-v3",
    "starcoder": "refact",
    "falcon": "falcon",
}


def expressible(root: dict) -> dict:
    """What of a tokenizer.json keys can hold: no normal form, and no flags of added tokens."""
    root = copy.deepcopy(root)
    root["normalizer"] = None
    for token in root["added_tokens"]:
        for flag in ("single_word", "lstrip", "rstrip", "normalized"):
            token[flag] = False
    return root


def token_lists(root: dict, padding: int = 3):
    """Texts and types by id, with padding as of a vocabulary that is rounded up."""
    vocab = root["model"]["vocab"]
    if isinstance(vocab, list):
        vocab = {token: id for id, (token, _) in enumerate(vocab)}
    texts = dict(map(reversed, vocab.items()))
    types = dict.fromkeys(texts, TYPES.NORMAL)
    for token in root["added_tokens"]:
        texts[token["id"]] = token["content"]
        types[token["id"]] = TYPES.CONTROL if token["special"] else TYPES.USER_DEFINED
        if token["content"] == "<unk>":
            types[token["id"]] = TYPES.UNKNOWN
    size = max(texts) + 1 + padding
    return (
        [texts.get(id, f"[PAD{id}]") for id in range(size)],
        [types.get(id, TYPES.UNUSED) for id in range(size)],
    )


def ends_of(root: dict):
    """Ids before and after a text."""
    found = {True: None, False: None}
    steps = root["post_processor"] or {}
    for step in steps.get("processors", [steps]):
        before = True
        for piece in step.get("single", []):
            if "Sequence" in piece:
                before = False
                continue
            found[before] = step["special_tokens"][piece["SpecialToken"]["id"]]["ids"][0]
    return found[True], found[False]


def write(path, model: str, root: dict, pre=None, scores=None, **more):
    """more: add_space_prefix and other keys by the names of gguf-py's functions."""
    writer = gguf.GGUFWriter(path, "llama")
    tokens, types = token_lists(root)
    writer.add_tokenizer_model(model)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if scores is not None:
        writer.add_token_scores([scores.get(token, -1e4) for token in tokens])
    if model == "gpt2":
        merges = root["model"]["merges"]
        writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    bos, eos = ends_of(root)
    writer.add_add_bos_token(bos is not None)
    writer.add_add_eos_token(eos is not None)
    if bos is not None:
        writer.add_bos_token_id(bos)
    if eos is not None:
        writer.add_eos_token_id(eos)
    for name, value in more.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def joined(scores: dict, text: str) -> list:
    """SentencePiece's BPE of one piece (bpe_model.cc, Encode): of all neighbours that make a
    token those of the best score are joined, the leftmost of equal ones."""
    parts = list(text)
    before = [i - 1 for i in range(len(parts))]
    after = [i + 1 for i in range(len(parts))]
    agenda = []

    def add(left, right):
        if left < 0 or right >= len(parts):
            return
        whole = parts[left] + parts[right]
        if whole in scores:
            heapq.heappush(agenda, (-scores[whole], left, right, whole))

    for i in range(len(parts) - 1):
        add(i, i + 1)
    while agenda:
        _, left, right, whole = heapq.heappop(agenda)
        if not parts[left] or not parts[right] or parts[left] + parts[right] != whole:
            continue
        parts[left], parts[right] = whole, ""
        after[left] = after[right]
        if after[right] < len(parts):
            before[after[right]] = left
        add(before[left], left)
        add(left, after[left])
    return [part for part in parts if part]


def encode_by_scores(root: dict, scores: dict, prefix: bool, text: str) -> list:
    """Ids of a text without special tokens, as llama.cpp has them."""
    ids = root["model"]["vocab"]
    first = {t["content"]: t["id"] for t in root["added_tokens"] if not t["special"]}
    special = {token["content"] for token in root["added_tokens"]}
    plain = {t: s for t, s in scores.items() if t not in special and not t.startswith("<0x")}
    found = []
    for part in re.split("(" + "|".join(map(re.escape, first)) + ")", text):
        if part in first:
            found.append(first[part])
            continue
        whole = (BAR if prefix and part else "") + part.replace(" ", BAR)
        for piece in joined(plain, whole):
            rest = [f"<0x{byte:02X}>" for byte in piece.encode()]
            found += [ids[token] for token in ([piece] if piece in plain else rest)]
    return found
