"""Feature maps as modules: what they compute, and when omega is drawn. The
mathematics is tested with the operators."""

import copy
import pickle

import pytest
import torch

from tarn import feature_maps as maps
from tarn.attention import CausalLinearAttention, LinearAttention
from tarn.builders import AttentionBuilder
from tarn.feature_maps import Favor, FavorPositive, FeatureMap, RandomFourierFeatures
from tarn.masking import TriangularCausalMask
from tarn.recurrent.attention import RecurrentLinearAttention

N, L, H, E, M = 2, 7, 2, 6, 3
NAMES = {
    "elu1": 6,
    "relu": 6,
    "relu2": 6,
    "softplus": 6,
    "poly2": 28,
    "favor": 6,
    "favor-positive": 6,
    "rff": 6,
    "smoothed-rff": 5,
    "grf": 6,
}
RANDOM = ["favor", "favor-positive", "rff", "smoothed-rff", "grf"]


def made(name, **options):
    return maps.make_feature_map(name, E, {"seed": 3, **options} if name in RANDOM else options)


@pytest.mark.parametrize("name", NAMES)
def test_widths_copies_and_gradients(name):
    feature_map = made(name).eval()
    x = torch.randn(N, L, H, E, requires_grad=True)
    out = feature_map(x)
    assert out.shape == (N, L, H, NAMES[name])
    assert torch.equal(feature_map.forward_queries(x), out)
    assert torch.equal(feature_map.forward_keys(x), out)
    (grad,) = torch.autograd.grad(out.square().sum(), x)
    assert grad.isfinite().all() and grad.any()
    for twin in (copy.deepcopy(feature_map), pickle.loads(pickle.dumps(feature_map))):
        assert torch.equal(twin(x), out)
    double = copy.deepcopy(feature_map).double()(x.double())
    torch.testing.assert_close(double.float(), out, atol=1e-5, rtol=1e-4)


def own_functions(feature_map):
    """The same map, but the operators only see its functions."""
    twin = copy.deepcopy(feature_map)
    twin.register_forward_hook(lambda *args: None)
    assert callable(twin.arguments()["feature_map"][0])
    return twin


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_named_and_own_functions_agree(name, causal):
    """The operator's map and the module's, in the attention and by formula."""
    feature_map = made(name).eval()
    assert isinstance(feature_map.arguments()["feature_map"], str)
    cls = CausalLinearAttention if causal else LinearAttention
    mask = TriangularCausalMask(L) if causal else None
    q, k, v = torch.randn(N, L, H, E), torch.randn(N, L, H, E), torch.randn(N, L, H, M)
    outs = [
        cls(E, each).eval()(q, k, v, mask) for each in (feature_map, own_functions(feature_map))
    ]
    torch.testing.assert_close(*outs, atol=1e-5, rtol=1e-4)
    scores = torch.einsum("nlhc,nshc->nhls", feature_map(q).double(), feature_map(k).double())
    scores = scores.tril() if causal else scores
    total = scores.sum(-1, keepdim=True)
    weights = torch.where(total.abs() > 1e-4, scores / total, torch.nan)
    wanted = torch.einsum("nhls,nshm->nlhm", weights, v.double()).float()
    sure = wanted.isfinite()
    assert sure.float().mean() > 0.5
    torch.testing.assert_close(outs[0][sure], wanted[sure], atol=1e-3, rtol=1e-3)


def test_elu_does_not_cancel():
    """Defect 3 of docs/migration.md."""
    x = torch.tensor([-87.0, -20.0, -15.0, -1.0, 0.0, 2.0], requires_grad=True)
    out = maps.elu_feature_map(6)(x)
    wanted = torch.where(x > 0, x.double() + 1, x.double().exp())
    torch.testing.assert_close(out, wanted.float(), rtol=1e-6, atol=0)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert grad.isfinite().all()
    torch.testing.assert_close(grad[:4], out[:4].detach())


def test_what_may_stand_for_a_map():
    x = torch.randn(3, E)
    for given in (
        torch.nn.Softplus(),
        maps.activation_feature_map(torch.nn.functional.softplus),
        maps.ActivationFunctionFeatureMap.factory(torch.nn.functional.softplus),
        lambda width: torch.nn.functional.softplus,
        lambda width: torch.nn.Softplus(),
    ):
        feature_map = maps.make_feature_map(given, E)
        assert isinstance(feature_map, FeatureMap) and feature_map.signed
        assert torch.equal(feature_map(x), torch.nn.functional.softplus(x))
    own = made("rff")
    assert maps.make_feature_map(own, E) is own
    assert maps.make_feature_map(None, E).arguments() == {"feature_map": "elu1"}
    assert isinstance(maps.make_feature_map(Favor, E, {"n_dims": 4}), Favor)
    with pytest.raises(ValueError, match="'sine'"):
        maps.make_feature_map("sine", E)
    with pytest.raises(TypeError, match="feature_map"):
        maps.make_feature_map(3, E)
    with pytest.raises(TypeError, match="factory"):
        maps.make_feature_map("elu1", E, {"n_dims": 4})
    with pytest.raises(ValueError, match="n_dims"):
        maps.make_feature_map(own, E, {"n_dims": 4})
    with pytest.raises(ValueError, match="frequency"):
        RandomFourierFeatures(E, n_dims=1)


def test_a_custom_map():
    class Asymmetric(FeatureMap):
        def forward_queries(self, x):
            return x.exp()

        def forward_keys(self, x):
            return torch.ones_like(x)

    q, k, v = torch.randn(N, L, H, E), torch.randn(N, L, H, E), torch.randn(N, L, H, M)
    out = LinearAttention(E, Asymmetric)(q, k, v)
    torch.testing.assert_close(out, v.mean(1, keepdim=True).expand_as(out), atol=1e-5, rtol=1e-5)

    class Changed(maps.EluFeatureMap):
        def forward(self, x):
            return super().forward(x).square()

    assert callable(Changed(E).arguments()["feature_map"][0]), "not the kernel's elu1"


@pytest.mark.parametrize("name", RANDOM)
def test_omega_is_there_from_the_start_and_a_function_of_its_key(name):
    """Defect 11 of docs/migration.md: it is not zero before the first call."""
    first, same = made(name), made(name)
    assert first.omega.abs().sum() > 0 and torch.equal(first.omega, same.omega)
    assert first.omega.shape[0] == E and list(first.state_dict()) == ["omega"]
    assert not torch.equal(made(name, layer=1).omega, first.omega)
    assert not torch.equal(maps.make_feature_map(name, E, {"seed": 4}).omega, first.omega)
    torch.manual_seed(1)
    one, two = (maps.make_feature_map(name, E) for _ in range(2))
    assert not torch.equal(one.omega, two.omega)
    torch.manual_seed(1)
    assert torch.equal(maps.make_feature_map(name, E).omega, one.omega)


@pytest.mark.parametrize("name", RANDOM)
def test_omega_is_drawn_in_training_only(name):
    """Defect 11 of docs/migration.md: never in evaluation, every `redraw` calls in training,
    and an earlier graph keeps the omega it was made with."""
    feature_map = made(name, redraw=2)
    start = feature_map.omega
    drawn = []
    for _ in range(6):
        feature_map.new_feature_map("cpu")
        drawn.append(feature_map.omega)
    assert torch.equal(drawn[0], start) and drawn[1] is drawn[0]
    assert not torch.equal(drawn[2], start) and drawn[3] is drawn[2]
    assert not torch.equal(drawn[4], drawn[2])
    feature_map.eval()
    for _ in range(4):
        feature_map.new_feature_map("cpu")
    assert feature_map.omega is drawn[5]
    fixed = made(name, redraw=0)
    for _ in range(3):
        fixed.new_feature_map("cpu")
    assert torch.equal(fixed.omega, start)
    fixed.redraw_at(2)
    assert torch.equal(fixed.omega, drawn[2]), "a function of (seed, layer, step)"


def test_two_calls_before_one_backward():
    module = LinearAttention(E, "favor")
    x = torch.randn(N, L, H, E, requires_grad=True)
    (module(x, x, x) + module(x, x, x)).sum().backward()
    assert x.grad.isfinite().all()


def test_drawing_in_evaluation_is_asked_for():
    for options, draws in (
        ({}, False),
        ({"redraw_in_eval": True}, True),
        ({"redraw_in_eval": True, "deterministic_eval": True}, False),
    ):
        feature_map = made("favor", **options).eval()
        before = feature_map.omega
        for _ in range(2):
            feature_map.new_feature_map("cpu")
        assert torch.equal(feature_map.omega, before) != draws
    module = LinearAttention(E, "favor", compat=True).eval()
    x = torch.randn(N, L, H, E)
    assert not torch.equal(module(x, x, x), module(x, x, x))
    module = LinearAttention(E, "favor").eval()
    assert torch.equal(module(x, x, x), module(x, x, x))


def test_checkpoint_holds_omega():
    source, target = LinearAttention(E, "favor").eval(), LinearAttention(E, "favor").eval()
    target.load_state_dict(source.state_dict())
    x = torch.randn(N, L, H, E)
    assert torch.equal(source(x, x, x), target(x, x, x))


@pytest.mark.parametrize("positive", [False, True])
def test_stabilised_favor_equals_the_plain_one(positive):
    """They agree where nothing overflows; it stays finite where the plain one is 0."""
    name = "favor-positive" if positive else "favor"
    q, k, v = torch.randn(N, L, H, E), torch.randn(N, L, H, E), torch.randn(N, L, H, M)
    plain, stable = (
        CausalLinearAttention(E, made(name, stabilise=each)).eval() for each in (False, True)
    )
    mask = TriangularCausalMask(L)
    torch.testing.assert_close(plain(q, k, v, mask), stable(q, k, v, mask), atol=1e-5, rtol=1e-4)
    far = 40 * k
    assert stable(q, far, v, mask).isfinite().all()
    assert stable(q, far, v, mask).ne(0).all() and plain(q, far, v, mask).eq(0).any()


@pytest.mark.parametrize("name", ["rff", "smoothed-rff", "favor"])
def test_maps_are_normalised_by_the_columns_made(name):
    """Odd n_dims: the mean of phi(x).phi(x) over omega is the kernel's. Under
    compat it is that times made / requested."""
    feature_map = made(name, n_dims=E + 1 if name != "smoothed-rff" else E, softmax_temp=0.05)
    x = 0.1 * torch.randn(50, E)
    squares = feature_map(x).square().sum(-1)
    constant = 1.0 if name == "smoothed-rff" else 0.0
    kernel = 1.0 if "rff" in name else float(torch.exp(0.05 * x.square().sum(-1)).mean())
    assert abs(float(squares.mean()) - kernel - constant) < 0.02
    feature_map.compat = True
    made_columns = 2 * feature_map.omega.shape[1]
    asked = feature_map.n_dims - (name == "smoothed-rff")
    ratio = (feature_map(x).square().sum(-1).mean() - constant) / (squares.mean() - constant)
    assert abs(float(ratio) - made_columns / asked) < 1e-4


def test_a_map_of_another_class():
    """Any object with the methods of a feature map is accepted, as fast-transformers
    calls them; queries and keys may differ."""

    class Own:
        drawn = 0

        def __init__(self, query_dimensions):
            self.weight = torch.linspace(0.5, 1.5, query_dimensions)

        def new_feature_map(self, device):
            self.drawn += 1

        def forward_queries(self, x):
            return torch.relu(x) + 1

        def forward_keys(self, x):
            return torch.exp(x * self.weight)

    class Asymmetric(FeatureMap):
        def __init__(self, query_dims):
            super().__init__(query_dims)
            self.own = Own(query_dims)

        def forward_queries(self, x):
            return self.own.forward_queries(x)

        def forward_keys(self, x):
            return self.own.forward_keys(x)

    q, k, v = (torch.randn(2, 6, 3, 4) for _ in "qkv")
    for cls, mask in ((LinearAttention, None), (CausalLinearAttention, TriangularCausalMask(6))):
        attention = cls(4, feature_map=Own, compat=True)
        assert type(attention.feature_map) is Own
        given = attention(q, k, v, mask)
        torch.testing.assert_close(
            given, cls(4, feature_map=Asymmetric, compat=True)(q, k, v, mask)
        )
        assert attention.feature_map.drawn == 1
    step = RecurrentLinearAttention(4, feature_map=Own, compat=True)
    state, rows = None, []
    for t in range(6):
        row, state = step(q[:, t], k[:, t], v[:, t], state)
        rows.append(row)
    torch.testing.assert_close(torch.stack(rows, 1), given)


@pytest.mark.parametrize("cls", [Favor, FavorPositive])
def test_stabilise_has_one_meaning_under_two_spellings(cls):
    """tarn's spelling is that of config.json; fast-transformers' is accepted too, also
    at its place among the arguments."""
    E = 4
    for made in (cls(E, stabilise=True), cls(E, stabilize=True), cls(E, 8, None, True, True)):
        assert made.stabilise and made.stabilize
        assert made.arguments()["stabilise"] is True
    assert not cls(E).stabilise and not cls(E, stabilize=False, stabilise=False).stabilise
    made = cls(E)
    made.stabilize = True
    assert made.stabilise
    with pytest.raises(ValueError, match="stabilise: want it as stabilize True, got False"):
        cls(E, stabilize=True, stabilise=False)


@pytest.mark.parametrize("word", ["stabilise", "stabilize"])
def test_builders_and_attentions_take_either_spelling(word):
    settings = {"feature_map": "favor", "query_dimensions": 4, word: True}
    inner = AttentionBuilder.from_kwargs(**settings).get("causal-linear")
    assert inner.feature_map.stabilise
    assert CausalLinearAttention(4, "favor", **{word: True}).feature_map.stabilise
