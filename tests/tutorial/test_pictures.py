"""docs/pictures are drawn by scripts/draw_pictures.py, readable, without overlaps."""

import importlib.metadata
import re
import xml.etree.ElementTree as tree

import pytest
from conftest import ROOT

pytest.importorskip("matplotlib")
import draw_pictures  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402

import plotting  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
LOWEST_POINTS = 8.0  # least size of type, at the width at which a README shows a picture


def drawn_texts(name, change=None):
    """The boxes in pixels of the texts of a picture as text, (x0, y0, x1, y1),
    the figure's box, and the sizes of type."""
    kept = []
    draw, (width, height) = draw_pictures.PICTURES[name]

    def keep(axes):
        draw(axes[0])
        if change:
            change(axes[0])
        kept.append(axes[0])

    plotting.render(keep, width=width, height=height, form="png")
    figure = kept[0].figure
    FigureCanvasAgg(figure).draw()  # places and sizes at one resolution
    texts = [one for one in kept[0].texts if one.get_text()]
    boxes = {}
    for number, one in enumerate(texts):
        boxes[number, one.get_text()] = one.get_window_extent().extents
    return boxes, figure.bbox.extents, [one.get_fontsize() for one in texts]


def faults(boxes, figure):
    """Texts that overlap each other or leave the figure."""
    found, rest = [], list(boxes.items())
    while rest:
        (_, text), (x0, y0, x1, y1) = rest.pop()
        if x0 < figure[0] or y0 < figure[1] or x1 > figure[2] or y1 > figure[3]:
            found.append(text)
        for (_, other), (a0, b0, a1, b1) in rest:
            if x0 < a1 and a0 < x1 and y0 < b1 and b0 < y1:
                found.append(f"{text} meets {other}")
    return found


@pytest.mark.parametrize("name", draw_pictures.PICTURES)
def test_texts_stand_apart(name):
    boxes, figure, sizes = drawn_texts(name)
    assert len(boxes) > 10 and faults(boxes, figure) == []
    assert min(sizes) >= LOWEST_POINTS


def test_overlaps_are_found():
    def spoil(axes):
        axes.text(1.45, 4.72, "on a title")
        axes.text(7.1, 1.0, "half outside")

    found = faults(*drawn_texts("block", spoil)[:2])
    assert any("on a title" in one for one in found) and "half outside" in found


@pytest.mark.parametrize("name", draw_pictures.PICTURES)
def test_picture_is_plain_svg(name):
    """Its text is text, it has a white background and no date, and one page shows it."""
    root = tree.fromstring(draw_pictures.picture(name))
    assert root.tag.endswith("svg") and "".join(root.itertext()).strip()
    assert b"dc:date" not in draw_pictures.picture(name)
    assert b"fill: #ffffff" in draw_pictures.picture(name)
    pages = [
        (ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("tutorial.md", "theory.md")
    ]
    assert sum(f"(pictures/{name}.svg)" in page for page in pages) == 1


def test_committed_pictures_are_what_the_script_draws():
    assert {one.name for one in FOLDER.iterdir()} == {
        f"{name}.svg" for name in draw_pictures.PICTURES
    }
    pin = re.search(r"^matplotlib==(.+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    if not pin or importlib.metadata.version("matplotlib") != pin.group(1):
        pytest.skip("another matplotlib draws otherwise")
    changed = [
        name
        for name in draw_pictures.PICTURES
        if (FOLDER / f"{name}.svg").read_bytes() != draw_pictures.picture(name)
    ]
    assert not changed, "run scripts/draw_pictures.py"
