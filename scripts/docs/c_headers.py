"""The public headers as Markdown: include/tarn/tarn.h and tarn.hpp.

Both are written in one plain style, and only that is read here: in tarn.h a
comment is above what it describes, and sections begin with `/* --- Name --- */`;
in tarn.hpp `///` is above classes and members, and bodies are left out.
"""

from __future__ import annotations

import re

SECTION = re.compile(r"/\* --- (.*?) -+ \*/")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
FUNCTION = re.compile(r"\b(\w+)\(")
WORD = re.compile(r"(?<![\w`:])((?:tarn|TARN)_\w+|[a-z]\w*_\w+|NULL)(?![\w`])")


def plain(comment: str) -> str:
    """The text of a comment, without its marks and margins."""
    lines = comment.removeprefix("/*").removesuffix("*/").splitlines()
    return "\n".join(re.sub(r"^ \* ?", "", line).rstrip() for line in lines).strip()


def escaped(text: str) -> str:
    """Text that Markdown shows unchanged, with names set as code."""
    text = re.sub(r"([*<>\[\]])", r"\\\1", text)
    return WORD.sub(r"`\1`", text)


def block(code: str, language: str) -> str:
    return f"```{language}\n{code}\n```\n"


def c_chunks(body: str) -> list[tuple[str, str]]:
    """The declarations of tarn.h with the comment above each: (comment, code).
    An empty line or the next comment above a line ends a declaration."""
    chunks: list[tuple[str, str]] = []
    comment, code, at = "", [], 0
    lines = body.splitlines()

    def end() -> None:
        nonlocal comment, code
        if code:
            chunks.append((comment, "\n".join(code)))
            comment = ""
        code = []

    depth = 0
    while at < len(lines):
        line = lines[at]
        if depth == 0 and not code and not line.strip():
            pass
        elif depth == 0 and line.startswith("/*"):
            end()
            first = at
            while "*/" not in lines[at]:
                at += 1
            comment = "\n".join(lines[first : at + 1])
        elif depth == 0 and not line.strip():
            end()
        else:
            code.append(line)
            bare = COMMENT.sub("", line)
            depth += bare.count("{") - bare.count("}")
            depth += bare.count("(") - bare.count(")")
        at += 1
    end()
    return chunks


def c_names(code: str) -> list[str]:
    """The names that a piece of code declares: functions, types, constants."""
    bare = COMMENT.sub("", code)
    names = re.findall(r"TARN_API [^;(]*?\b(tarn_\w+)\(", bare)
    names += re.findall(r"^typedef (?:struct|enum) \w+ (\w+);", bare, re.MULTILINE)
    names += re.findall(r"^\} (\w+);", bare, re.MULTILINE)
    names += re.findall(r"^typedef [^{};]*\(\*(\w+)\)", bare, re.MULTILINE)
    names += re.findall(r"^#define (TARN_\w+)", bare, re.MULTILINE)
    if bare.startswith("enum {"):
        names += re.findall(r"\b(TARN_\w+) = ", bare)
    return names


def c_page(header: str) -> str:
    """tarn.h as a page: its conventions, then every declaration by section."""
    head = COMMENT.match(header)
    assert head and header.count('extern "C" {') == 1, "tarn.h is not as this reads it"
    body = header.split('extern "C" {\n#endif\n', 1)[1].split("#ifdef __cplusplus", 1)[0]
    page = ["# tarn.h", "", escaped(plain(head[0])), ""]
    parts = SECTION.split(body)
    for name, part in zip(["Status", *parts[1::2]], parts[0::2]):
        page += [f"## {name}", ""]
        for comment, code in c_chunks(part):
            names = c_names(code)
            if names:
                page += [f"### {', '.join(names)}", ""]
            page += [block(code, "c")]
            if comment:
                page += [escaped(plain(comment)), ""]
    return "\n".join(page)


def matching(text: str, at: int) -> int:
    """The position after the brace that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError("tarn.hpp: a brace is not closed")


def without_comments(code: str) -> str:
    return re.sub(r"(?m)(^|\s)//(?!/).*$", lambda m: m[1].rstrip(" "), code)


def declaration(head: str) -> str:
    """What is before a function's body, on one line, without the
    initialisers of members."""
    line = re.sub(r"\s*\n\s*", " ", without_comments(head)).strip()
    line = re.sub(r"(\)(?: noexcept)?) : \w.*", r"\1", line)
    return line.rstrip(";") + ";"


def is_special(text: str) -> bool:
    """Whether a member moves, assigns or destroys: such members have no comments."""
    return bool(re.search(r"\b(\w+)\(\1&&|operator=\(|^~", text))


def members(body: str) -> list[tuple[str, list[str]]]:
    """The public members of a class: (comment, declarations), those under one
    comment together."""
    body = re.split(r"^ private:", body, flags=re.MULTILINE)[0]
    found: list[tuple[str, list[str]]] = []
    comment: list[str] = []
    fresh = True  # a comment or an empty line came: a new group begins
    at = 0
    while at < len(body):
        end = body.find("\n", at)
        end = len(body) if end < 0 else end
        line = body[at:end].strip()
        if not line or line == "public:":
            fresh, at = True, end + 1
            comment = [] if not line else comment
        elif line.startswith("///"):
            if fresh or not comment:
                comment, fresh = [], False
            comment.append(line.removeprefix("///").strip())
            if found and not found[-1][1]:
                found.pop()
            found.append((" ".join(comment), []))
            at = end + 1
        elif line.startswith("//"):
            at = end + 1
        else:
            stop = at
            while body[stop] not in ";{":
                # Braces among parameters are default values.
                if body[stop] == "(":
                    depth = 0
                    while True:
                        depth += {"(": 1, ")": -1}.get(body[stop], 0)
                        if depth == 0:
                            break
                        stop += 1
                stop += 1
            after = matching(body, stop) if body[stop] == "{" else stop + 1
            text = declaration(body[at:stop])
            special = is_special(text) and found and found[-1][1]
            if special and not is_special(found[-1][1][-1]):
                fresh = True
            if fresh or not found:
                found.append(("", []))
                fresh = False
            found[-1][1].append(text)
            rest = body.find("\n", after)
            at = len(body) if rest < 0 else rest + 1
            comment = []
    return [group for group in found if group[1]]


def cpp_names(declarations: list[str]) -> list[str]:
    names: list[str] = []
    for text in declarations:
        name = re.search(r"(operator\S+|~?\w+)\(", text)
        if name and name[1] not in names:
            names.append(name[1])
    return names


def cpp_page(header: str) -> str:
    """tarn.hpp as a page: every class and its public members."""
    head = re.match(r"(?:// .*\n)+", header)
    assert head, "tarn.hpp is not as this reads it"
    intro = " ".join(line.removeprefix("//").strip() for line in head[0].splitlines())
    page = ["# tarn.hpp", "", escaped(intro), ""]
    outer = re.sub(r"^namespace internal \{.*?^\}  // namespace internal$", "", header,
                   flags=re.DOTALL | re.MULTILINE)  # fmt: skip
    kinds = r"^((?:///.*\n)+)((?:class|struct) (\w+)[^;{]*\{|using (\w+) = [^;]*;)"
    for match in re.finditer(kinds, outer, re.MULTILINE):
        said = " ".join(line.removeprefix("///").strip() for line in match[1].splitlines())
        name = match[3] or match[4]
        page += [f"## {name}", ""]
        if match[4]:
            page += [block(match[2], "cpp"), escaped(said), ""]
            continue
        opening = match.end() - 1
        body = outer[opening : matching(outer, opening)]
        if match[2].startswith("struct"):
            whole = match[2][:-1] + body + ";"
            page += [block(whole, "cpp"), escaped(said), ""]
            continue
        page += [block(match[2].rstrip("{ ") + ";", "cpp"), escaped(said), ""]
        for comment, declarations in members(body[1:-1]):
            names = cpp_names(declarations)
            page += [f"### {name}::{', '.join(names)}", "", block("\n".join(declarations), "cpp")]
            if comment:
                page += [escaped(comment), ""]
    return "\n".join(page)
