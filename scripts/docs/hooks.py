"""What MkDocs does not do by itself, for the site of `make docs` (mkdocs.yml).

- Pages that are no files of docs/: API reference, changelog, rules, and every
  file outside of docs/ that a page links to, under source/.
- The playground, where `make wasm` has built it; its sources are no pages.
- Links: in the tree they are relative paths, as a Git host follows them; here
  those that leave docs/ go to the pages made above.
- Lists: a Git host's Markdown begins one without an empty line before it and
  indents by two; Python-Markdown wants an empty line and four.
"""

from __future__ import annotations

import pathlib
import posixpath
import re
from typing import Any

import c_headers
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAYGROUND = ROOT / "build-wasm/playground/index.html"
# Files of the tree that are pages of the site: path, page.
PAGES = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "HACKING.md": "hacking.md",
    "include/tarn/tarn.h": "api/tarn.h.md",
    "include/tarn/tarn.hpp": "api/tarn.hpp.md",
}
HIGHLIGHTED = {".py": "python", ".cc": "cpp", ".h": "cpp", ".hpp": "cpp", ".sh": "bash",
               ".json": "json", ".yml": "yaml", ".cff": "yaml", ".cmake": "cmake"}  # fmt: skip
# Modules of the package that are shown on the page of another.
SHOWN_WITH = {"tarn.recurrent": ("tarn.recurrent.transformers", "tarn.recurrent.attention")}

FENCE = re.compile(r"^\s*(```+|~~~+)")
CODE = re.compile(r"(`+[^`]*`+)")
INLINE = re.compile(r"(\]\()([^)\s]+)")
REFERENCE = re.compile(r"^(\s{0,3}\[[^\]]+\]:\s+)(\S+)")
BULLET = re.compile(r"^(\s*)(?:[-*+]|1\.)\s")
ITEM = re.compile(r"^(\s*)(?:[-*+]|\d+\.)\s")


def prose(text: str):
    """Lines, each with whether it is text: (line, not inside a block of code)."""
    fence = ""
    for line in text.splitlines():
        mark = FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
            yield line, False
        elif fence:
            if mark and mark[1].startswith(fence):
                fence = ""
            yield line, False
        else:
            yield line, True


def page_of(path: str) -> str | None:
    """The page or file of the site that stands for a path of the tree."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_file():
        return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"
    return None


def map_links(text: str, change) -> str:
    """The text with each link's target replaced by change(target)."""
    lines = []
    for line, is_text in prose(text):
        if is_text:
            line = REFERENCE.sub(lambda m: m[1] + change(m[2]), line)
            parts = CODE.split(line)
            parts[::2] = [INLINE.sub(lambda m: m[1] + change(m[2]), part) for part in parts[::2]]
            line = "".join(parts)
        lines.append(line)
    return "\n".join(lines) + "\n"


def target_of(link: str, origin: str) -> tuple[str, str] | None:
    """Path in the tree and anchor of a link in the file `origin`; None for
    links of other kinds."""
    path, mark, anchor = link.partition("#")
    if not path or re.match(r"^[a-z]+:|^/", path):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), path)), mark + anchor


def linked_files(text: str, origin: str) -> set[str]:
    """Files outside of docs/ that a text links to."""
    found = set()

    def note(link: str) -> str:
        target = target_of(link, origin)
        if target and not target[0].startswith("docs/") and (ROOT / target[0]).is_file():
            found.add(target[0])
        return link

    map_links(text, note)
    return found


def site_links(text: str, origin: str, page: str) -> str:
    """The text of a file of the tree with links as `page` of the site has them. A
    link to a missing file or to a folder stays as it is, for MkDocs to complain of."""

    def change(link: str) -> str:
        target = target_of(link, origin)
        there = page_of(target[0]) if target else None
        if target is None or there is None:
            return link
        return posixpath.relpath(there, posixpath.dirname(page) or ".") + target[1]

    return map_links(text, change)


def site_lists(text: str) -> str:
    """The text with lists as Python-Markdown reads them."""
    lines: list[str] = []
    in_list = False
    for line, is_text in prose(text):
        if is_text:
            before = lines[-1] if lines else ""
            item = ITEM.match(line)
            if item and in_list and len(item[1]) in (2, 3):
                line = "    " + line.lstrip()
            elif BULLET.match(line) and not in_list and before.strip():
                lines.append("")
            if item:
                in_list = True
            elif line.strip() and not before.strip() and not line.startswith(" "):
                in_list = False
        lines.append(line)
    return "\n".join(lines) + "\n"


def source_page(path: str) -> str:
    """A file of the tree as a page. Markdown stays Markdown."""
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    language = HIGHLIGHTED.get(pathlib.PurePath(path).suffix, "text")
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    title = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    return f"{title}{fence}{language}\n{text.rstrip()}\n{fence}\n"


def python_page(module: str) -> str:
    """The reference of a module, from its docstrings."""
    text = f"# {module}\n\n::: {module}\n"
    for other in SHOWN_WITH.get(module, ()):
        text += f"\n## {other}\n\n::: {other}\n    options:\n      heading_level: 3\n"
    return text


def python_modules() -> list[str]:
    """The package and its parts, as `tarn/__init__.py` lists them."""
    text = (ROOT / "python/tarn/__init__.py").read_text()
    parts = re.search(r"^_PARTS = \((.*?)^\)", text, re.DOTALL | re.MULTILINE)
    assert parts, "python/tarn/__init__.py: _PARTS is not there"
    return ["tarn", *(f"tarn.{name}" for name in re.findall(r'"(\w+)"', parts[1]))]


def api_index() -> str:
    rows = []
    for module in python_modules():
        path = ROOT / "python" / pathlib.Path(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        text = re.match(r'\s*"""(.*?)(?:"""|\n\n)', path.read_text(), re.DOTALL)
        summary = " ".join(text[1].split()) if text else ""
        rows.append(f"| [`{module}`](python/{module}.md) | {summary} |")
    table = "\n".join(rows)
    return (
        "# API reference\n\n"
        "These pages are written from the docstrings of the Python package and from the comments of the\n"
        "two public headers, each time the site is built.\n\n"
        f"## Python\n\n| module | what it is |\n|---|---|\n{table}\n\n"
        "## C and C++\n\n| header | what it is |\n|---|---|\n"
        "| [`tarn/tarn.h`](tarn.h.md) | the C interface of `libtarn` |\n"
        "| [`tarn/tarn.hpp`](tarn.hpp.md) | owners for C++17 over it, header only |\n"
    )


def made_pages() -> dict[str, str]:
    """Pages that are not made from a file's text: page, Markdown."""
    pages = {f"api/python/{module}.md": python_page(module) for module in python_modules()}
    pages["api/index.md"] = api_index()
    pages["api/tarn.h.md"] = site_lists(
        c_headers.c_page((ROOT / "include/tarn/tarn.h").read_text())
    )
    pages["api/tarn.hpp.md"] = c_headers.cpp_page((ROOT / "include/tarn/tarn.hpp").read_text())
    return pages


_origins: dict[str, str] = {}  # page: the file of the tree whose text it has


def on_files(files: Files, *, config: Any) -> Files:
    for page, text in made_pages().items():
        files.append(File.generated(config, page, content=text))
    worker = (ROOT / "scripts/docs/iframe-worker.js").read_text()
    files.append(File.generated(config, "assets/javascripts/iframe-worker.js", content=worker))
    for file in [one for one in files if one.src_uri.startswith("playground/")]:
        files.remove(file)
    if PLAYGROUND.is_file():
        files.append(
            File.generated(config, "playground/index.html", content=PLAYGROUND.read_text())
        )

    _origins.clear()
    for file in files.documentation_pages():
        if file.generated_by is None:
            _origins[file.src_uri] = f"docs/{file.src_uri}"
    texts = [(origin, (ROOT / origin).read_text()) for origin in _origins.values()]
    wanted = {path for path in PAGES if path.endswith(".md") and (ROOT / path).is_file()}
    for origin, text in texts:
        wanted |= linked_files(text, origin)
    done: set[str] = set()
    while wanted - done:
        path = (wanted - done).pop()
        done.add(path)
        page = page_of(path)
        if page is None or page.startswith("api/"):
            continue
        text = source_page(path)
        files.append(File.generated(config, page, content=text))
        _origins[page] = path
        if path.endswith(".md"):
            wanted |= linked_files(text, path)
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    origin = _origins.get(page.file.src_uri)
    if origin is None:
        return markdown
    if not origin.endswith(".md"):
        return markdown
    if origin == "docs/playground.md" and PLAYGROUND.is_file():
        markdown = markdown.replace("\n\n", "\n\n[Open it](playground/index.html).\n\n", 1)
    return site_lists(site_links(markdown, origin, page.file.src_uri))
