"""Writes the playground as one file, which opens from disk and from any host and asks
for nothing: page, engine and model.

    playground.py PAGE ENGINE MODEL OUT

PAGE: docs/playground; ENGINE: the folder of tarn_runtime.js and .wasm; MODEL: a model
directory; OUT: the file. Engine and model are data blocks in base64, which no policy
runs; the page's policy names its own scripts and style by their hashes and refuses the
rest, connections included.
"""

import base64
import hashlib
import json
import pathlib
import re
import sys


def encoded(path):
    return base64.b64encode(path.read_bytes()).decode("ascii")


def source_hash(text):
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def element(text, tag):
    """The text inside of a script or style, which nothing in it may end."""
    assert f"</{tag}" not in text.lower(), f"the page's {tag} ends itself"
    return f"<{tag}>{text}</{tag}>"


def built_page(page, engine, model):
    html = (page / "index.html").read_text(encoding="utf-8")
    style = (page / "page.css").read_text(encoding="utf-8")
    scripts = {
        "tarn_runtime.js": (engine / "tarn_runtime.js").read_text(encoding="utf-8"),
        "page.js": (page / "page.js").read_text(encoding="utf-8"),
    }
    allowed = " ".join(source_hash(text) for text in scripts.values())
    policy = (
        f"default-src 'none'; script-src {allowed} 'wasm-unsafe-eval'; "
        f"style-src {source_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    files = {path.name: encoded(path) for path in sorted(model.iterdir())}
    blocks = (
        f'<script type="text/plain" id="engine">{encoded(engine / "tarn_runtime.wasm")}</script>\n'
        f'<script type="application/json" id="model">{json.dumps(files)}</script>\n'
    )
    changes = [
        (
            r"<!-- policy: .*? -->",
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        ),
        (r'<link rel="stylesheet" href="page.css">', element(style, "style")),
        (r'(?=<script src="tarn_runtime.js">)', blocks),
    ]
    changes += [
        (rf'<script src="{re.escape(name)}"></script>', element(text, "script"))
        for name, text in scripts.items()
    ]
    for pattern, text in changes:
        html, count = re.subn(pattern, lambda _, text=text: text, html, count=1)
        assert count == 1, f"{page / 'index.html'}: want {pattern}"
    return html


def main(page, engine, model, out):
    target = pathlib.Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = built_page(pathlib.Path(page), pathlib.Path(engine), pathlib.Path(model))
    target.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
