#!/usr/bin/env python3
"""Draws the pictures of docs/tutorial.md and docs/theory.md:
scripts/draw_pictures.py [--to DIR] [--form svg|png]

    block.svg       a transformer layer and the mixer inside it
    forms.svg       one result in three forms: parallel, chunked, recurrent
    recurrence.svg  the state S, z over time
    chunks.svg      how the chunked form goes over the pairs of tokens
    bracketings.svg (phi(Q) phi(K)^T) V and phi(Q) (phi(K)^T V), with shapes
    stack.svg       one token through a stack, with the state of every layer

Without options the committed files of docs/pictures are written again. The same
matplotlib draws the same bytes.
"""

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

import plotting  # noqa: E402

# What a colour means, on all pictures.
MIXER, STATE = plotting.COLOURS["linear"], plotting.COLOURS["softmax"]
PLAIN, LINE, WORD = plotting.COLOURS["peer"], "#555555", "#333333"
TIMES, SQUARED = "\N{MULTIPLICATION SIGN}", "\N{SUPERSCRIPT TWO}"
PHI, SUM = "\N{GREEK SMALL LETTER PHI}", "\N{N-ARY SUMMATION}"
T_ = "\N{LATIN SUBSCRIPT SMALL LETTER T}"
TRANSPOSED, DOT, MINUS = "\N{MODIFIER LETTER CAPITAL T}", "\N{MIDDLE DOT}", "\N{MINUS SIGN}"
SMALL = 9.0


def low(number):
    """A number as a subscript."""
    return "".join(chr(ord("\N{SUBSCRIPT ZERO}") + int(digit)) for digit in str(number))


def canvas(axes, width, height):
    """Axes in inches, without a frame: one unit is one inch in both directions."""
    axes.set_axis_off()
    axes.set_position((0, 0, 1, 1))  # the whole figure, instead of what the layout would choose
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)


def word(axes, x, y, text, *, colour=WORD, size=None, side="center", bold=False, turned=False):
    axes.text(
        x,
        y,
        text,
        rotation=90 if turned else 0,
        color=colour,
        size=size,
        ha=side,
        va="center",
        weight="bold" if bold else "normal",
    )


def box(axes, x, y, width, height, text="", *, colour=PLAIN, fill=0.16, size=None, bold=False):
    """A box whose lower left corner is (x, y), with its text in the middle."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=to_rgba(colour, fill),
            edgecolor=colour,
            linewidth=1.4,
        )
    )
    if text:
        word(axes, x + width / 2, y + height / 2, text, size=size, bold=bold)


def cell(axes, x, y, size, colour, fill):
    """One pair of a query and a key."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle(
            (x, y), size, size, facecolor=to_rgba(colour, fill), edgecolor="white", linewidth=1.0
        )
    )


def arrow(axes, start, end, *, colour=LINE):
    axes.annotate(
        "",
        end,
        start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": colour,
            "linewidth": 1.4,
            "shrinkA": 0,
            "shrinkB": 0,
            "mutation_scale": 11,
        },
    )


def line(axes, *points, colour=LINE):
    axes.plot(*zip(*points), color=colour, linewidth=1.4, solid_capstyle="round")


def circle(axes, x, y, text, *, colour=LINE, radius=0.13):
    from matplotlib.patches import Circle

    axes.add_patch(
        Circle((x, y), radius, facecolor="white", edgecolor=colour, linewidth=1.4, zorder=3)
    )
    axes.text(x, y - 0.01, text, color=WORD, ha="center", va="center", zorder=4)


def draw_block(axes):
    """A layer on the left, its mixer on the right."""
    canvas(axes, *PICTURES["block"][1])
    word(axes, 1.45, 4.72, "one layer", bold=True)
    word(axes, 1.45, 0.18, "x: a row a token")
    arrow(axes, (1.45, 0.32), (1.45, 0.82))
    box(axes, 0.75, 0.82, 1.4, 0.38, "norm")
    arrow(axes, (1.45, 1.20), (1.45, 1.46))
    box(axes, 0.75, 1.46, 1.4, 0.46, "mixer", colour=MIXER, bold=True)
    arrow(axes, (1.45, 1.92), (1.45, 2.16))
    circle(axes, 1.45, 2.29, "+")
    arrow(axes, (1.45, 2.42), (1.45, 2.78))
    box(axes, 0.75, 2.78, 1.4, 0.38, "norm")
    arrow(axes, (1.45, 3.16), (1.45, 3.36))
    box(axes, 0.75, 3.36, 1.4, 0.38, "feed-forward")
    arrow(axes, (1.45, 3.74), (1.45, 3.96))
    circle(axes, 1.45, 4.09, "+")
    arrow(axes, (1.45, 4.22), (1.45, 4.56))
    for begin, end in ((0.56, 2.29), (2.58, 4.09)):  # residuals
        line(axes, (1.45, begin), (0.35, begin), (0.35, end))
        arrow(axes, (0.35, end), (1.32, end))

    box(axes, 3.0, 0.45, 4.0, 4.05, colour=MIXER, fill=0.05)
    word(axes, 5.0, 4.72, "the mixer: attention", bold=True, colour=MIXER)
    line(axes, (2.15, 1.92), (3.0, 4.44), colour=MIXER)
    line(axes, (2.15, 1.46), (3.0, 0.51), colour=MIXER)
    word(axes, 5.0, 0.20, "norm(x)")
    line(axes, (5.0, 0.32), (5.0, 0.62))
    line(axes, (3.7, 0.62), (6.3, 0.62))
    for x, name in ((3.7, "queries"), (5.0, "keys"), (6.3, "values")):
        arrow(axes, (x, 0.62), (x, 0.88))
        box(axes, x - 0.55, 0.88, 1.1, 0.38, name)
    for x, name in ((3.7, f"{PHI}(q)"), (5.0, f"{PHI}(k)")):
        arrow(axes, (x, 1.26), (x, 1.52))
        box(axes, x - 0.55, 1.52, 1.1, 0.38, name, colour=MIXER)
    arrow(axes, (5.0, 1.90), (5.0, 2.46))
    arrow(axes, (6.3, 1.26), (6.3, 2.46))
    box(
        axes,
        4.45,
        2.46,
        2.4,
        0.62,
        f"S = {SUM} {PHI}(k) v{TRANSPOSED}\nz = {SUM} {PHI}(k)",
        colour=STATE,
    )
    arrow(axes, (5.65, 3.08), (5.65, 3.32))
    line(axes, (3.7, 1.90), (3.7, 3.52))
    arrow(axes, (3.7, 3.52), (4.45, 3.52))
    box(axes, 4.45, 3.32, 2.4, 0.4, f"S{TRANSPOSED}{PHI}(q) / (z {DOT} {PHI}(q))", colour=MIXER)
    arrow(axes, (5.65, 3.72), (5.65, 3.92))
    box(axes, 4.45, 3.92, 2.4, 0.38, "output projection")


def draw_forms(axes):
    """What each form computes, and at which cost."""
    canvas(axes, *PICTURES["forms"][1])
    size, low_edge, count, chunk = 0.22, 1.12, 8, 4
    for left, name in ((0.3, "parallel"), (2.75, "chunked"), (5.2, "recurrent")):
        word(axes, left + 0.88, 3.42, name, bold=True)
        if name != "recurrent":
            word(axes, left + 0.88, 3.10, "keys", size=SMALL)
    for left, is_chunked in ((0.3, False), (2.75, True)):
        word(axes, left - 0.14, low_edge + 0.88, "queries", size=SMALL, turned=True)
        for i in range(count):
            for j in range(count):
                y = low_edge + (count - 1 - i) * size
                colour, fill = (MIXER, 0.75) if j <= i else (PLAIN, 0.22)
                if not is_chunked or j // chunk == i // chunk:
                    cell(axes, left + j * size, y, size, colour, fill)
    box(axes, 2.79, low_edge + 0.04, 0.8, 0.8, "S, z", colour=STATE, fill=0.3, bold=True)
    for i in range(3):
        y = 2.58 - 0.66 * i
        box(axes, 5.2, y, 0.72, 0.36, "S, z", colour=STATE, fill=0.3, bold=True)
        arrow(axes, (5.92, y + 0.18), (6.32, y + 0.18))
        word(axes, 6.62, y + 0.18, f"row {i + 1}", size=SMALL)
        arrow(axes, (5.56, y), (5.56, y - 0.30))
        word(axes, 5.68, y - 0.15, f"+ token {i + 2}", size=SMALL, side="left")
    for left, lines in (
        (0.3, ("all pairs at once", "O(N\N{SUPERSCRIPT TWO}) time and memory")),
        (2.75, ("pairs inside a chunk, a", "state for the past: O(N)")),
        (5.2, ("a token at a time:", "O(1) time, fixed memory")),
    ):
        for number, text in enumerate(lines):
            word(axes, left + 0.88, 0.82 - 0.22 * number, text, size=SMALL)
    for x, colour, fill, text in (
        (0.95, MIXER, 0.75, "pair that is computed"),
        (3.1, PLAIN, 0.22, "hidden by the mask"),
        (5.45, STATE, 0.3, "state"),
    ):
        cell(axes, x - 0.28, 0.09, size, colour, fill)
        word(axes, x, 0.20, text, size=SMALL, side="left")


def draw_recurrence(axes):
    """S and z from token to token."""
    canvas(axes, *PICTURES["recurrence"][1])
    box(
        axes,
        0.15,
        1.48,
        0.8,
        0.62,
        f"S{low(0)} = 0\nz{low(0)} = 0",
        colour=STATE,
        fill=0.3,
        size=SMALL,
    )
    for t, left in ((1, 1.65), (2, 3.6), (3, 5.55)):
        arrow(axes, (left - (0.7 if t == 1 else 1.0), 1.79), (left, 1.79), colour=STATE)
        circle(axes, left - 0.35, 1.79, "+", colour=STATE)
        arrow(axes, (left - 0.35, 0.86), (left - 0.35, 1.66))
        box(axes, left - 0.85, 0.48, 1.0, 0.38, f"k{low(t)}, v{low(t)}")
        box(
            axes, left, 1.48, 0.95, 0.62, f"S{low(t)}\nz{low(t)}", colour=STATE, fill=0.3, bold=True
        )
        arrow(axes, (left + 0.475, 2.10), (left + 0.475, 2.52))
        box(axes, left + 0.2, 2.52, 0.55, 0.38, f"y{low(t)}", colour=MIXER)
        box(axes, left + 0.25, 0.48, 0.45, 0.38, f"q{low(t)}")
        arrow(axes, (left + 0.475, 0.86), (left + 0.475, 1.48))
    arrow(axes, (6.5, 1.79), (7.05, 1.79), colour=STATE)
    word(
        axes,
        3.6,
        3.14,
        f"y{T_} = S{T_}{TRANSPOSED}{PHI}(q{T_}) / (z{T_} {DOT} {PHI}(q{T_}))",
        colour=MIXER,
    )
    word(
        axes,
        3.6,
        0.20,
        f"+ adds {PHI}(k{T_}) v{T_}{TRANSPOSED} to S and {PHI}(k{T_}) to z: the state never grows",
        colour=STATE,
    )


def draw_chunks(axes):
    """Twelve tokens in chunks of four."""
    canvas(axes, *PICTURES["chunks"][1])
    size, left, low_edge, count, chunk = 0.235, 0.72, 0.42, 12, 4
    top = low_edge + count * size
    word(axes, left + count * size / 2, top + 0.36, "keys and values", size=SMALL)
    for c in range(3):
        at = left + c * chunk * size
        word(axes, at + chunk * size / 2, top + 0.13, f"chunk {c + 1}", size=SMALL)
        y = top - (c + 0.5) * chunk * size
        word(axes, left - 0.09, y, f"queries,\nchunk {c + 1}", size=SMALL - 1.0, side="right")
        for i in range(chunk):
            for j in range(chunk):
                colour, fill = (MIXER, 0.75) if j <= i else (PLAIN, 0.22)
                cell(axes, at + j * size, top - (c * chunk + i + 1) * size, size, colour, fill)
    for c in (1, 2):
        y = top - (c + 1) * chunk * size
        box(
            axes,
            left + 0.03,
            y + 0.04,
            c * chunk * size - 0.06,
            chunk * size - 0.08,
            f"S{low(c)}, z{low(c)}",
            colour=STATE,
            fill=0.3,
            bold=True,
        )
    notes = (
        (2.93, WORD, "For each chunk of C tokens:"),
        (2.57, MIXER, "1. pairs inside the chunk:"),
        (2.33, WORD, f"    {PHI}(Q) {PHI}(K){TRANSPOSED}, its upper half hidden,"),
        (2.09, WORD, "    times V: a C x C product"),
        (1.73, STATE, "2. all that came before:"),
        (1.49, WORD, f"    {PHI}(Q) S, one product, whatever"),
        (1.25, WORD, "    the number of tokens in S"),
        (0.89, STATE, "3. the state takes the chunk in:"),
        (0.65, WORD, f"    S + {PHI}(K){TRANSPOSED}V,  z + {SUM} {PHI}(k)"),
    )
    for y, colour, text in notes:
        word(axes, 3.95, y, text, colour=colour, size=10, side="left")
    for x, colour, fill, text in (
        (0.95, MIXER, 0.75, "pair that is computed"),
        (3.1, PLAIN, 0.22, "hidden by the mask"),
        (5.05, STATE, 0.3, "state of what came before"),
    ):
        cell(axes, x - 0.28, 0.05, 0.2, colour, fill)
        word(axes, x, 0.15, text, size=SMALL, side="left")


def matrix(axes, x, y, name, shape, *, colour=PLAIN, fill=0.22):
    """A matrix around the height y, drawn to scale: its name above, its shape below. Returns
    its right edge."""
    sizes = {"N": 0.95, "C": 0.4, "M": 0.52}
    height, width = (sizes[letter] for letter in shape)
    box(axes, x, y - height / 2, width, height, colour=colour, fill=fill)
    word(axes, x + width / 2, y + height / 2 + 0.14, name, size=SMALL)
    word(axes, x + width / 2, y - height / 2 - 0.13, f" {TIMES} ".join(shape), size=SMALL)
    return x + width


def product(axes, x, y, *operands):
    """Matrices in a row, the last of which is the product of the others. Returns the
    right edge."""
    signs = [DOT] * (len(operands) - 2) + ["="]
    for number, operand in enumerate(operands):
        name, shape, colour, fill = operand
        right = matrix(axes, x, y, name, shape, colour=colour, fill=fill)
        if number < len(signs):
            word(axes, right + 0.17, y, signs[number], size=13, bold=True)
        x = right + 0.34
    return right


def draw_bracketings(axes):
    """Both orders of the two products, at the same scale."""
    canvas(axes, *PICTURES["bracketings"][1])
    query = (f"{PHI}(Q)", "NC", MIXER, 0.22)
    key = (f"{PHI}(K){TRANSPOSED}", "CN", MIXER, 0.22)
    value = ("V", "NM", PLAIN, 0.22)
    weights, state = ("A", "NN", MIXER, 0.75), ("S", "CM", STATE, 0.3)
    for y, title, colour, first, second, cost in (
        (
            3.75,
            f"( {PHI}(Q) {PHI}(K){TRANSPOSED} ) V",
            MIXER,
            (query, key, weights),
            (weights, value, ("A V", "NM", PLAIN, 0.22)),
            f"N{SQUARED}C + N{SQUARED}M multiply-adds, N{SQUARED} numbers between the products",
        ),
        (
            1.47,
            f"{PHI}(Q) ( {PHI}(K){TRANSPOSED} V )",
            STATE,
            (key, value, state),
            (query, state, (f"{PHI}(Q) S", "NM", PLAIN, 0.22)),
            "2 N C M multiply-adds, C M numbers between the products",
        ),
    ):
        word(axes, 0.3, y + 0.92, title, colour=colour, side="left", bold=True)
        right = product(axes, 0.3, y, *first)
        arrow(axes, (right + 0.2, y), (right + 0.52, y), colour=colour)
        product(axes, right + 0.72, y, *second)
        word(axes, 0.3, y - 0.86, cost, side="left", size=10)
    word(
        axes,
        0.3,
        0.18,
        f"Then row i is divided by {PHI}(q\N{LATIN SUBSCRIPT SMALL LETTER I}) {DOT} z, the sum of row i "
        f"of A, where z = {SUM} {PHI}(k)",
        side="left",
        size=10,
    )


def draw_stack(axes):
    """A token from the embedding to the logits, and the states that it changes."""
    canvas(axes, *PICTURES["stack"][1])
    middle = 3.6
    word(axes, 1.02, 4.56, f"states after token t {MINUS} 1", colour=STATE, bold=True)
    word(axes, 6.18, 4.56, "states after token t", colour=STATE, bold=True)
    word(axes, middle, 0.16, "token t")
    arrow(axes, (middle, 0.28), (middle, 0.50))
    box(axes, middle - 0.8, 0.50, 1.6, 0.36, "embedding")
    for low_edge, index in ((1.12, "1"), (2.34, "2"), (3.80, "L")):
        arrow(axes, (middle, low_edge - 0.26), (middle, low_edge))
        box(axes, 2.15, low_edge, 2.9, 0.96, colour=MIXER, fill=0.05)
        word(axes, 4.95, low_edge + 0.71, f"layer {index}", side="right", size=SMALL, colour=MIXER)
        box(axes, middle - 0.68, low_edge + 0.09, 1.36, 0.32, "mixer", colour=MIXER, bold=True)
        arrow(axes, (middle, low_edge + 0.41), (middle, low_edge + 0.55))
        box(axes, middle - 0.68, low_edge + 0.55, 1.36, 0.32, "feed-forward")
        y = low_edge + 0.25
        for left in (0.46, 5.62):
            box(axes, left, y - 0.21, 1.12, 0.42, f"S, z: layer {index}", colour=STATE, fill=0.3)
        arrow(axes, (1.58, y), (middle - 0.68, y), colour=STATE)
        arrow(axes, (middle + 0.68, y), (5.62, y), colour=STATE)
    line(axes, (middle, 3.30), (middle, 3.36))
    word(axes, middle, 3.45, f"{DOT} {DOT} {DOT}", bold=True)
    arrow(axes, (middle, 4.76), (middle, 5.02))
    box(axes, middle - 0.8, 5.02, 1.6, 0.36, "norm, head")
    arrow(axes, (middle, 5.38), (middle, 5.62))
    word(axes, middle, 5.75, "logits, from which token t + 1 is drawn")
    word(axes, 6.18, 0.62, "L layers of H heads keep", colour=STATE, size=SMALL)
    word(axes, 6.18, 0.40, "L H C (M + 1) numbers,", colour=STATE, size=SMALL)
    word(axes, 6.18, 0.18, "whatever t is", colour=STATE, size=SMALL)


# Name: what draws it, its width and height in inches.
PICTURES = {
    "block": (draw_block, (7.2, 4.9)),
    "forms": (draw_forms, (7.2, 3.6)),
    "recurrence": (draw_recurrence, (7.2, 3.35)),
    "chunks": (draw_chunks, (7.2, 3.85)),
    "bracketings": (draw_bracketings, (7.2, 4.85)),
    "stack": (draw_stack, (7.2, 5.95)),
}


def picture(name, form="svg"):
    """A picture as a file's bytes."""
    draw, (width, height) = PICTURES[name]
    return plotting.render(lambda axes: draw(axes[0]), width=width, height=height, form=form)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--form", choices=("svg", "png"), default="svg")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        (options.to / f"{name}.{options.form}").write_bytes(picture(name, options.form))


if __name__ == "__main__":
    main()
