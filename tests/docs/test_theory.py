"""docs/theory.md: the code and tests that it names are where its links lead, and what
it says of kernels, matrices and counts holds, in float64, without tarn's operators."""

import pathlib
import re

import pytest

np = pytest.importorskip("numpy")

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/theory.md").read_text("utf-8")
# [`name`, `name`](../path) and [words](path).
NAMED = re.findall(r"\[((?:`[^`\]]+`(?:, )?)+)\]\(\.\./([^)#]+)\)", TEXT)
LINKS = re.findall(r"\]\(([^)]+)\)", TEXT)


def defines(text, name):
    """Whether a source file is named so, or defines the name: a Python function or class, a
    C++ test, function or class."""
    return (
        re.search(
            rf"^\s*(?:def|class) {name}\b|^TEST(?:_P|_F)?\(\w+, {name}\)|^[\w:<>]+ {name}\(|"
            rf"^class {name}(?:Impl)?\b|^def {name}\b",
            text,
            re.MULTILINE,
        )
        is not None
    )


@pytest.mark.parametrize(("names", "path"), NAMED)
def test_named_code_is_there(names, path):
    text = (ROOT / path).read_text("utf-8")
    missing = [
        name
        for name in re.findall(r"`([^`]+)`", names)
        if not defines(text, name) and name != pathlib.Path(path).name
    ]
    assert not missing


def test_the_check_of_names_can_fail():
    assert len(NAMED) > 40
    assert defines("def a(x):\n", "a") and not defines("x = a(1)\n", "a")
    assert defines("TEST_P(Suite, Case) {", "Case") and not defines("// Case", "Case")


def test_links_lead_to_files_and_headings():
    for link in LINKS:
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = ROOT / "docs" / path if path else ROOT / "docs/theory.md"
        assert target.is_file(), link
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, link


def elu1(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def test_the_exponential_kernel_has_full_rank():
    """More distinct points than columns: rank n, where C features have rank C at most."""
    x = draw(12, 2) * 1.5
    assert np.linalg.matrix_rank(np.exp(x @ x.T), tol=1e-9) == 12
    assert np.linalg.matrix_rank(elu1(x) @ elu1(x).T) == 2


def test_degree_two_has_as_many_features_as_told():
    """The rank of (1 + x . y)^2 over many points is 1 + D + D (D + 1) / 2."""
    x = draw(60, 4)
    assert np.linalg.matrix_rank((1 + x @ x.T) ** 2) == 1 + 4 + 4 * 5 // 2


def test_elu1_is_another_kernel():
    keys = draw(5, 3)
    query = np.zeros(3)
    assert np.ptp(np.exp(keys @ query)) == 0
    np.testing.assert_allclose(elu1(keys) @ elu1(query), elu1(keys).sum(1))
    assert np.ptp(elu1(keys) @ elu1(query)) > 0.1


def test_relu_sends_no_gradient_where_elu1_does():
    """The slope of the attention of a query by its entries, from differences of float64: an
    entry below 0 counts under elu + 1 alone."""
    rng = np.random.default_rng(4)
    keys, values = np.abs(rng.normal(size=(7, 5))), rng.normal(size=(7, 3))
    query, weights = np.array([-1.2, 0.8, -0.1, 0.4, -3.0]), rng.normal(size=3)
    maps = {
        "relu": lambda x: np.maximum(x, 0),
        "elu1": lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))),
    }

    def loss(phi, query):
        row = phi(keys) @ phi(query)
        return row / row.sum() @ values @ weights

    for name, phi in maps.items():
        step = 1e-6
        slope = np.array(
            [
                (loss(phi, query + step * e) - loss(phi, query - step * e)) / (2 * step)
                for e in np.eye(5)
            ]
        )
        assert ((slope == 0) == ((query < 0) & (name == "relu"))).all()
    assert maps["relu"](-np.abs(query)).sum() == 0  # all entries below 0: no weight is left


def test_taylor_polynomials_of_odd_degree_are_negative_somewhere():
    x, terms = np.linspace(-9, 9, 2001), np.ones(2001)
    total = terms.copy()
    for degree in range(1, 8):
        terms = terms * x / degree
        total = total + terms
        assert (total.min() < 0) == (degree % 2 == 1)


def test_a_positive_function_need_not_be_a_kernel():
    x = np.array([0, 0.9, 1.8])
    near = (np.abs(x[:, None] - x) < 1).astype(float)
    assert near.min() == 0 and np.linalg.eigvalsh(near).min() < -0.4


def test_both_bracketings_and_the_row_sums():
    q, k, v = elu1(draw(9, 4)), elu1(draw(9, 4, seed=1)), draw(9, 3, seed=2)
    weights = q @ k.T
    left = weights @ v / weights.sum(1, keepdims=True)
    right = q @ (k.T @ v) / (q @ k.sum(0))[:, None]
    np.testing.assert_allclose(left, right, rtol=1e-12)
    np.testing.assert_allclose((weights / (q @ k.sum(0))[:, None]).sum(1), 1, rtol=1e-12)


def test_gradients_of_the_causal_sums():
    """(13) to (15) against differences of one entry each."""
    q, k, v, g = (draw(6, 4, seed=one) for one in range(4))

    def loss(q, k, v):
        return float((np.tril(q @ k.T) @ v * g).sum())

    S = np.cumsum(k[:, :, None] * v[:, None, :], axis=0)
    G = np.cumsum((q[:, :, None] * g[:, None, :])[::-1], axis=0)[::-1]
    told = (
        np.einsum("icm,im->ic", S, g),
        np.einsum("icm,im->ic", G, v),
        np.einsum("icm,ic->im", G, k),
    )
    for number, gradient in enumerate(told):
        for i, c in np.ndindex(gradient.shape):
            moved = [one.copy() for one in (q, k, v)]
            moved[number][i, c] += 1.0  # the loss is linear in each entry
            assert loss(*moved) - loss(q, k, v) == pytest.approx(gradient[i, c], abs=1e-10)


def test_decays_compose():
    """Runs of tokens as maps S -> A S + B, in two groupings, and the form over pairs."""
    a, b, c, x = np.exp(-np.abs(draw(8))), draw(8, 3), draw(8, 3, seed=1), draw(8, 2, seed=2)
    runs = [(a[t], np.outer(b[t], x[t])) for t in range(8)]

    def then(first, second):
        return second[0] * first[0], second[0] * first[1] + second[1]

    one = runs[0]
    for run in runs[1:]:
        one = then(one, run)
    level = runs
    while len(level) > 1:
        level = [then(*level[i : i + 2]) for i in range(0, len(level), 2)]
    np.testing.assert_allclose(one[1], level[0][1], rtol=1e-12)
    pairs = sum(np.prod(a[j + 1 :]) * (c[7] @ b[j]) * x[j] for j in range(8))
    np.testing.assert_allclose(one[1].T @ c[7], pairs, rtol=1e-12)


@pytest.mark.parametrize(("width", "heads"), [(256, 8), (512, 8)])
def test_counts_of_a_block(width, heads):
    head = width // heads
    weights = 4 * width * heads * head + 2 * width * 4 * width
    assert weights == 12 * width**2
    assert 4 * width + 4 * width + width + 2 * 2 * width == 13 * width
    assert heads * (4 * head * head + 3 * head) == 4 * width**2 // heads + 3 * width
    n = 12 * width
    assert 2 * (n + 1) * width == pytest.approx(2 * weights, rel=1e-3)
