"""The site of `make docs`: built strictly, its links followed, its pages opened in
a browser. Skipped where the generator (requirements-docs.txt) or Chromium is not
installed; scripts/setup.sh --docs installs both."""

import ast
import html.parser
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def generator():
    """A Python that has MkDocs, or None."""
    if importlib.util.find_spec("mkdocs") and importlib.util.find_spec("mkdocstrings"):
        return sys.executable
    python = ROOT / ".venv/bin/python"
    if (ROOT / ".venv/.tarn-setup-docs").exists() and python.exists():
        return str(python)
    return None


if generator() is None:
    pytest.skip("requirements-docs.txt is not installed: make docs", allow_module_level=True)


def build(to, config=None):
    command = [generator(), "-B", "-m", "mkdocs", "build", "--strict", "--site-dir", str(to)]
    command += ["--config-file", str(config)] if config else []
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=300,
                          env=dict(os.environ, NO_MKDOCS_2_WARNING="1"))  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


# What a page loads by itself: element, attribute. A link that is followed by hand
# (`a`) may lead anywhere.
LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"),
          ("audio", "src"), ("video", "src"), ("embed", "src"), ("object", "data"),
          ("input", "src"), ("use", "href")}  # fmt: skip
# Meant for search engines, and not loaded.
NAMED = {"canonical", "next", "prev", "alternate"}


class Page(html.parser.HTMLParser):
    """Anchors, links, what is loaded, and the text of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loaded, self.classes = set(), [], [], set()
        self.words, self.hidden = [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = {name: value or "" for name, value in attributes}
        self.hidden += tag in ("script", "style")
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.classes |= set(given.get("class", "").split())
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        for name, value in given.items():
            if (tag, name) in LOADED and given.get("rel") not in NAMED:
                self.loaded.append(value)
            if name == "srcset":
                self.loaded += [part.split()[0] for part in value.split(",")]
            if name == "style":
                self.loaded += re.findall(r"url\(['\"]?([^'\")]+)", value)

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.hidden:
            self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())


def pages_of(folder):
    """All pages but 404.html, which a server shows under any path."""
    return {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))
            if path.name != "404.html"}  # fmt: skip


@pytest.fixture(scope="module")
def pages(site):
    found = pages_of(site)
    assert len(found) > 40
    return found


def broken_links(pages):
    """Every internal link, image or script whose file or anchor is not there."""
    problems = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = (path.parent / urllib.parse.unquote(parts.path)).resolve()
                if target.is_dir():
                    target /= "index.html"
            if not target.is_file():
                problems.append(f"{path}: {link}: no such file")
            elif parts.fragment and target.suffix == ".html":
                there = pages[target].anchors if target in pages else set()
                if urllib.parse.unquote(parts.fragment) not in there | {"__skip", ""}:
                    problems.append(f"{path}: {link}: no such anchor")
    return problems


def test_every_link_and_anchor_resolves(pages):
    links = sum(len(page.links) for page in pages.values())
    assert links > 1000
    assert broken_links(pages) == []


def test_the_check_of_links_can_fail(tmp_path):
    (tmp_path / "b.html").write_text("<h1 id='there'>B</h1>")
    (tmp_path / "a.html").write_text(
        "<a href='b.html#there'>1</a><a href='b.html#gone'>2</a><a href='c.html'>3</a>"
        "<a href='#here'>4</a><img src='no.png'><a href='https://example.org/x'>5</a>"
    )
    found = broken_links(pages_of(tmp_path))
    assert [line.split(": ", 1)[1] for line in found] == [
        "b.html#gone: no such anchor", "c.html: no such file", "#here: no such anchor",
        "no.png: no such file",
    ]  # fmt: skip


@pytest.mark.parametrize("broken", ["[x](gone.md)", "[x](#gone)", "[x](../src/gone.cc)"])
def test_a_strict_build_refuses_a_broken_link(tmp_path, broken):
    """A small separate site has the same configuration and the hooks' settings."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# A page\n\n{broken}\n")
    text = (ROOT / "mkdocs.yml").read_text()
    text = re.sub(r"^nav:\n(?:[ -].*\n)+", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^(hooks|plugins|not_in_nav|extra):.*\n(?:[ -].*\n)+", "", text, flags=re.MULTILINE
    )
    (tmp_path / "mkdocs.yml").write_text(text + "plugins: []\n")
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode != 0 and "gone" in done.stderr, done.stderr
    (tmp_path / "docs/index.md").write_text("# A page\n\n[x](#a-page)\n")
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode == 0, done.stderr


def is_remote(link):
    return re.match(r"(?:https?:|wss?:|//)", link.strip(), re.IGNORECASE) is not None


def test_nothing_is_loaded_from_the_network(site, pages):
    for path, page in pages.items():
        assert [link for link in page.loaded if is_remote(link)] == [], path
        # The theme would fetch the program that draws these.
        assert "mermaid" not in page.classes, path
    sheets = sorted(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        links = re.findall(r"(?:url\(|@import\s)\s*['\"]?([^'\")\s]+)", sheet.read_text())
        assert [link for link in links if is_remote(link)] == [], sheet
    assert (
        is_remote("https://example.org/a.css")
        and is_remote("//example.org")
        and not is_remote("a.css")
    )


def names_of(module):
    """`__all__` of a module, which is read and not imported, and its file."""
    path = ROOT / "python" / pathlib.Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return []


def parts():
    """The package and its parts, as `tarn/__init__.py` names them."""
    for node in ast.parse((ROOT / "python/tarn/__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_PARTS":
            return ["tarn", *(f"tarn.{name}" for name in ast.literal_eval(node.value))]
    raise AssertionError("_PARTS is not there")


# Names that the package sets while it is imported, or that have no docstring.
NOT_SHOWN = {"__version__"}


@pytest.mark.parametrize("module", parts())
def test_api_pages_have_every_public_name(site, pages, module):
    page = pages[site / f"api/python/{module}.html"]
    missing = [name for name in names_of(module)
               if not {anchor for anchor in page.anchors if anchor.endswith(f".{name}")}]  # fmt: skip
    assert set(missing) <= NOT_SHOWN, missing


@pytest.mark.parametrize(
    "page,wanted",
    [
        ("python/tarn.ops", "linear_attention( queries, keys, values, *, causal=True, causal_offset=0, "
         'feature_map="elu1", key_mask=None, key_lengths=None, cu_seqlens=None, denominator="exact"'),
        ("python/tarn.nn", "EncoderLayer( d_model: int, heads: int, d_ff: int | None = None"),
        ("python/tarn.runtime", "Model( path: AnyPath"),
        ("python/tarn.runtime", "A file of the model is not what it must be."),
        ("python/tarn.optim", "RAdam( params, lr="),
        ("python/tarn.builders", "RecurrentEncoderBuilder"),
        ("python/tarn.ops", "dtypes. Both before any work."),
        ("tarn.h", "TARN_API tarn_status tarn_prefill( const"),
        ("tarn.hpp", "static Model Open(const std::string& path, const ModelOptions& options = {});"),
    ],
)  # fmt: skip
def test_api_pages_have_signatures(site, pages, page, wanted):
    def close(text):
        return re.sub(r"\s*([(),\[\]|*=:])\s*", r"\1", text)

    assert close(wanted) in close(pages[site / f"api/{page}.html"].text)


def test_lists_are_lists(site, pages):
    """So are a list without an empty line before it, and one inside another."""
    text = (site / "kernels.html").read_text()
    assert re.search(r"<li>Prefetch distance of one chunk", text)
    text = (site / "benchmarks/index.html").read_text()
    assert re.search(
        r"<li>[^<]*<strong>AVX3</strong>.*?<ul>\s*<li>fast-transformers", text, re.DOTALL
    )


def test_files_of_the_tree_are_pages(site, pages):
    assert (
        "def test_steps_prefill_and_batch_agree"
        in pages[site / "source/tests/python/fast_transformers/test_recurrent.py.html"].text
    )


# --- In a browser -------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def browse(tmp_path, page, *options):
    command = [CHROMIUM, "--headless", "--disable-gpu", "--disable-dev-shm-usage",
               "--disable-background-networking", "--disable-component-update",
               "--no-first-run", "--hide-scrollbars", f"--user-data-dir={tmp_path / 'profile'}"]  # fmt: skip
    command += ["--no-sandbox"] if os.geteuid() == 0 else []  # root cannot run it otherwise
    done = subprocess.run([*command, *options, page], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Skips where there is no browser, or none that opens a page from disk here."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: make docs")
    folder = tmp_path_factory.mktemp("browser")
    (folder / "plain.html").write_text("<p id='there'>opened</p>")
    try:
        dom = browse(folder, (folder / "plain.html").as_uri(), "--dump-dom")
    except AssertionError as error:
        pytest.skip(f"chromium does not start here: {str(error)[:300]}")
    if "opened" not in dom:
        pytest.skip("chromium may not read files here")


def test_front_page_has_its_text(site, browser, tmp_path):
    dom = browse(tmp_path, (site / "index.html").as_uri(), "--dump-dom")
    page = Page(dom)
    assert "js" in page.classes  # the theme's script ran
    for wanted in ("tarn", "Train like a transformer, run like an RNN", "Where to begin"):
        assert wanted in page.text, wanted


def test_search_works_from_disk(site, browser, tmp_path):
    address = (site / "index.html").as_uri() + "?q=prefill"
    dom = browse(tmp_path, address, "--virtual-time-budget=10000", "--dump-dom")
    found = re.search(r"(\d+) matching documents", dom)
    assert found and int(found[1]) >= 5


def test_front_page_is_not_blank(site, browser, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    shot = tmp_path / "front.png"
    blank = tmp_path / "blank.html"
    blank.write_text("<body style='background:#fff'></body>")

    def ink(page):
        """Colours, and the share of pixels that differ from the most common one."""
        browse(tmp_path, page.as_uri(), "--window-size=1280,900", f"--screenshot={shot}")
        with image.open(shot) as opened:
            pixels = opened.convert("RGB")
        assert pixels.width == 1280 and pixels.height > 600
        counts = [count for count, _ in pixels.getcolors(pixels.width * pixels.height)]
        return len(counts), 1 - max(counts) / sum(counts)

    colours, share = ink(site / "index.html")
    assert colours > 100 and 0.03 < share < 0.7, (colours, share)
    assert ink(blank) == (1, 0)


def asked_for(tmp_path, page):
    """Addresses on the network that a page opened from disk requested, scripts
    included. The browser's own requests are not made in the name of a page."""
    log = tmp_path / "net.json"
    browse(tmp_path, page, f"--log-net-log={log}", "--virtual-time-budget=5000", "--dump-dom")
    text = log.read_text()
    try:
        events = json.loads(text)["events"]
    except json.JSONDecodeError:  # the log of a browser that was ended is incomplete
        events = json.loads(text.rstrip().rstrip(",") + "]}")["events"]
    found = [event.get("params", {}) for event in events]
    return {params["url"] for params in found if is_remote(params.get("url", ""))
            and str(params.get("network_isolation_key", "")).startswith("file://")}  # fmt: skip


def test_the_browser_contacts_no_other_host(site, browser, tmp_path):
    control = tmp_path / "control.html"
    control.write_text("<script>fetch('http://127.0.0.1:9/x.json')</script>")
    assert asked_for(tmp_path, control.as_uri()) == {"http://127.0.0.1:9/x.json"}
    for page in ("index.html?q=prefill", "kernels.html", "api/python/tarn.ops.html"):
        assert asked_for(tmp_path, f"{site.as_uri()}/{page}") == set()
