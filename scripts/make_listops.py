#!/usr/bin/env python3
"""Generates ListOps: nested lists of operators over digits, with their value.

Long-range form of the task (Nangia & Bowman 2018; Tay et al. 2021): operators
MIN, MAX, MED, SM over the digits 0-9. Depth counts from 1. A node above depth
10 is an operator with probability 0.25, otherwise, and always at depth 10, a
uniform digit. An operator is uniform over the four and has 2 to 10 children,
uniform. MED is the median cut to an integer, SM the sum modulo 10. The length
is the number of digits plus two an operator (its opening token and its closing
bracket; there are no other parentheses); a tree is kept when
MIN_LEN < length < MAX_LEN. No example occurs twice, in whatever split.

Each line is LABEL TAB TEXT with one character a token, so that a character
tokenizer sees what a tokenizer of words would see:

    [MIN -> n   [MAX -> x   [MED -> d   [SM -> s   ] -> ]   digits as they are

OUT/train.tsv, valid.tsv and test.tsv, and OUT/listops.json: version, seed,
bounds, SHA-256 of each file and of the three together, histogram of labels.
"""

import argparse
import hashlib
import json
import pathlib
import random
import sys
from collections.abc import Iterable

VERSION = 1
MAX_DEPTH = 10
OPERATOR_PROBABILITY = 0.25
MIN_CHILDREN, MAX_CHILDREN = 2, 10
OPENING = {"MIN": "n", "MAX": "x", "MED": "d", "SM": "s"}
CLOSING = "]"


def value_of(operator: str, digits: list[int]) -> int:
    """The digit that `operator` (MIN, MAX, MED or SM) computes from one or more."""
    if operator == "MIN":
        return min(digits)
    if operator == "MAX":
        return max(digits)
    if operator == "SM":
        return sum(digits) % 10
    if operator != "MED":
        raise ValueError(f"operator: want MIN, MAX, MED or SM, got {operator!r}")
    ordered = sorted(digits)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) // 2


def evaluate(tokens: Iterable[str]) -> int:
    """The value of an expression in words: "[MIN", "7", "]"; "(" and ")" are
    ignored. Raises ValueError for anything that is no expression."""
    stack: list[tuple[str, list[int]]] = []
    result: int | None = None
    for token in tokens:
        if token in "()":
            continue
        if result is not None:
            raise ValueError(f"expression: want its end, got {token!r}")
        if token.startswith("["):
            stack.append((token[1:], []))
            continue
        if token == CLOSING:
            if not stack or not stack[-1][1]:
                raise ValueError("expression: a bracket that closes nothing")
            operator, digits = stack.pop()
            digit = value_of(operator, digits)
        elif len(token) == 1 and token in "0123456789":
            digit = int(token)
        else:
            raise ValueError(f"expression: want a token of ListOps, got {token!r}")
        if stack:
            stack[-1][1].append(digit)
        else:
            result = digit
    if result is None or stack:
        raise ValueError("expression: it ends too early")
    return result


def from_characters(text: str) -> list[str]:
    """The words that the characters of a generated line stand for."""
    words = {letter: "[" + operator for operator, letter in OPENING.items()}
    return [words.get(letter, letter) for letter in text]


class TooLong(Exception):
    """A tree has reached the cap: the rest of it need not be drawn."""


def draw_tree(draw: random.Random, max_len: int) -> tuple[str, int]:
    """One tree by definition: text in characters, value. Raises TooLong."""
    text: list[str] = []
    length = 0

    # Only random() is used: it is the one method whose sequence Python promises
    # to keep from version to version.
    def below(bound: int) -> int:
        return int(draw.random() * bound)

    def node(depth: int) -> int:
        nonlocal length
        if depth == MAX_DEPTH or draw.random() >= OPERATOR_PROBABILITY:
            digit = below(10)
            text.append(str(digit))
            length += 1
            if length >= max_len:
                raise TooLong
            return digit
        operator = list(OPENING)[below(len(OPENING))]
        text.append(OPENING[operator])
        length += 2
        count = MIN_CHILDREN + below(MAX_CHILDREN - MIN_CHILDREN + 1)
        digits = [node(depth + 1) for _ in range(count)]
        text.append(CLOSING)
        return value_of(operator, digits)

    value = node(1)
    return "".join(text), value


def draw_set(
    seed: int, count: int, min_len: int, max_len: int
) -> tuple[list[tuple[int, str]], int]:
    """`count` different examples (label, text), and the trees drawn for them."""
    draw = random.Random(seed)
    examples: list[tuple[int, str]] = []
    seen: set[str] = set()
    drawn = 0
    while len(examples) < count:
        drawn += 1
        # Narrow bounds hold few different trees: say so instead of running on.
        if drawn > 1000 * (count + 1000):
            raise ValueError(
                f"bounds: want {count} different examples with {min_len} < "
                f"length < {max_len}, got {len(examples)} in {drawn} trees"
            )
        try:
            text, value = draw_tree(draw, max_len)
        except TooLong:
            continue
        if len(text) <= min_len or text in seen:
            continue
        seen.add(text)
        examples.append((value, text))
    return examples, drawn


def histogram(examples: list[tuple[int, str]]) -> dict[str, int]:
    """Examples of each label, "0" to "9"."""
    counts = {str(digit): 0 for digit in range(10)}
    for label, _ in examples:
        counts[str(label)] += 1
    return counts


def write(out: pathlib.Path, options: argparse.Namespace) -> dict[str, object]:
    """Draws and writes the three files and listops.json; returns the latter."""
    sizes = {"train": options.train, "valid": options.valid, "test": options.test}
    examples, drawn = draw_set(options.seed, sum(sizes.values()), options.min_len, options.max_len)
    out.mkdir(parents=True, exist_ok=True)
    together = hashlib.sha256()
    files: dict[str, object] = {}
    begin = 0
    for name, size in sizes.items():
        part = examples[begin : begin + size]
        begin += size
        data = "".join(f"{label}\t{text}\n" for label, text in part).encode()
        together.update(data)
        (out / f"{name}.tsv").write_bytes(data)
        files[name] = {
            "examples": size,
            "sha256": hashlib.sha256(data).hexdigest(),
            "labels": histogram(part),
        }
    facts: dict[str, object] = {
        "generator": "make_listops.py",
        "version": VERSION,
        "seed": options.seed,
        "min_len_exclusive": options.min_len,
        "max_len_exclusive": options.max_len,
        "trees_drawn": drawn,
        "mean_length": sum(len(text) for _, text in examples) / max(len(examples), 1),
        "sha256": together.hexdigest(),
        "labels": histogram(examples),
        "files": files,
    }
    (out / "listops.json").write_text(json.dumps(facts, indent=1) + "\n")
    return facts


def parse(arguments: list[str]) -> argparse.Namespace:
    """Options of the command line, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path, help="folder for the files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--min-len", type=int, default=500, help="exclusive")
    parser.add_argument("--max-len", type=int, default=2000, help="exclusive")
    parser.add_argument("--train", type=int, default=96000)
    parser.add_argument("--valid", type=int, default=2000)
    parser.add_argument("--test", type=int, default=2000)
    options = parser.parse_args(arguments)
    for name in ("train", "valid", "test", "min_len"):
        if getattr(options, name) < 0:
            parser.error(f"--{name.replace('_', '-')}: want 0 or more")
    if options.max_len < options.min_len + 2:
        parser.error("--max-len: want a length between the two bounds")
    return options


def main(arguments: list[str]) -> int:
    """The program; 2 for options that cannot be met."""
    options = parse(arguments)
    try:
        facts = write(options.out, options)
    except ValueError as error:
        print(f"make_listops: error: {error}", file=sys.stderr)
        return 2
    print(
        f"seed {facts['seed']}, {facts['trees_drawn']} trees drawn, mean length "
        f"{facts['mean_length']:.1f}"
    )
    print(f"sha256 {facts['sha256']}")
    print(f"labels {json.dumps(facts['labels'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
