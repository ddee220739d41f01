"""The modules inside torch: hooks, copies, replaced projections, compilation,
several processes, checkpoints, recomputation by autograd."""

import copy
import io
import os
import pickle
import socket
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tarn.builders import TransformerDecoderBuilder, TransformerEncoderBuilder
from tarn.events import AttentionEvent, EventDispatcher, IntermediateOutput
from tarn.masking import FullMask, LengthMask, TriangularCausalMask
from tarn.transformers import TransformerEncoderLayer
from tarn.utils import make_mirror

SMALL = dict(
    n_layers=2,
    n_heads=2,
    query_dimensions=4,
    value_dimensions=3,
    feed_forward_dimensions=8,
    dropout=0.0,
)
KINDS = ["full", "linear", "causal-linear"]


def encoder(kind="linear", **settings):
    settings = {**SMALL, **settings}
    if kind == "full":
        settings["attention_dropout"] = 0.0
    return TransformerEncoderBuilder.from_kwargs(attention_type=kind, **settings).get()


def mask_of(kind, seq_len=5):
    return TriangularCausalMask(seq_len) if kind.startswith("causal") else None


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kind", KINDS)
def test_layer_is_the_formula(kind, norm):
    layer = encoder(kind, norm=norm, activation="gelu").layers[0]
    x = torch.randn(2, 5, 6)
    mask = mask_of(kind)

    def attend(y):
        return layer.attention(y, y, y, mask)

    def network(y):
        return layer.linear2(torch.nn.functional.gelu(layer.linear1(y)))

    if norm == "post":
        x1 = layer.norm1(x + attend(x))
        wanted = layer.norm2(x1 + network(x1))
    else:
        x1 = x + attend(layer.norm1(x))
        wanted = x1 + network(layer.norm2(x1))
    torch.testing.assert_close(layer(x, attn_mask=mask), wanted)


def test_decoder_layer_is_the_formula():
    builder = TransformerDecoderBuilder.from_kwargs(
        **SMALL, self_attention_type="causal-linear", cross_attention_type="linear", norm="pre"
    )
    layer = builder.get().layers[0]
    x, memory = torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    x_mask, lengths = TriangularCausalMask(5), LengthMask(torch.tensor([7, 3]))
    y = layer.norm1(x)
    x1 = x + layer.self_attention(y, y, y, x_mask)
    y = layer.norm2(x1)
    x2 = x1 + layer.cross_attention(y, memory, memory, key_lengths=lengths)
    wanted = x2 + layer.linear2(torch.relu(layer.linear1(layer.norm3(x2))))
    given = layer(x, memory, x_mask=x_mask, memory_length_mask=lengths)
    torch.testing.assert_close(given, wanted)


def test_layer_refuses_unknown_words():
    for wrong in ({"activation": "tanh"}, {"norm": "middle"}):
        with pytest.raises(ValueError, match="TransformerEncoderLayer"):
            TransformerEncoderLayer(torch.nn.Identity(), 4, **wrong)


def test_intermediate_outputs():
    dispatcher, heard = EventDispatcher(), []
    model = encoder(event_dispatcher=dispatcher)
    dispatcher.listen(IntermediateOutput, heard.append)
    out = model(torch.randn(2, 5, 6))
    assert [event.layer for event in heard] == [0, 1]
    assert all(event.source is model for event in heard)
    # Not bit for bit: the model's last norm is the fused pass, torch's is called here.
    torch.testing.assert_close(model.norm(heard[1].x), out, rtol=0, atol=1e-6)


def test_state_dict_round_trip():
    model, other = encoder("linear"), encoder("linear")
    x = torch.randn(2, 5, 6)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer))
    assert torch.equal(model(x), other(x))
    with pytest.raises(RuntimeError, match="layers.0.attention"):
        other.load_state_dict({k: v for k, v in model.state_dict().items() if "norm" in k})


@pytest.mark.parametrize("kind", KINDS)
def test_copies_compute_the_same_and_share_nothing(kind):
    model, x = encoder(kind), torch.randn(2, 5, 6)
    wanted = model(x, attn_mask=mask_of(kind))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x, attn_mask=mask_of(kind)), wanted)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
    assert torch.equal(model(x, attn_mask=mask_of(kind)), wanted)


def test_hooks_see_every_submodule():
    model = encoder("linear")
    called = set()
    for name, module in model.named_modules():
        module.register_forward_hook(lambda m, args, out, name=name: called.add(name))
    x = torch.randn(2, 5, 6, requires_grad=True)
    wanted = {n for n, m in model.named_modules() if not isinstance(m, torch.nn.ModuleList)}
    model(x)
    assert called == wanted
    # A hook may change what a projection returns.
    handle = model.layers[0].attention.value_projection.register_forward_hook(
        lambda m, args, out: torch.zeros_like(out)
    )
    heads = []
    model.layers[0].attention.out_projection.register_forward_pre_hook(
        lambda m, args: heads.append(args[0])
    )
    model(x)
    assert heads[0].eq(0).all()
    handle.remove()
    gradients = []
    model.layers[1].attention.register_full_backward_hook(
        lambda m, grad_in, grad_out: gradients.append(grad_out[0])
    )
    model(x).sum().backward()
    assert gradients[0].shape == x.shape


class LowRank(torch.nn.Module):
    """A projection with a trainable correction of rank 2."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = torch.nn.Linear(base.in_features, 2, bias=False)
        self.up = torch.nn.Linear(2, base.out_features, bias=False)
        torch.nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


@pytest.mark.parametrize("kind", KINDS)
def test_a_projection_can_be_replaced(kind):
    model, x = encoder(kind), torch.randn(2, 5, 6)
    mask = mask_of(kind)
    before = model(x, attn_mask=mask)
    for layer in model.layers:
        layer.attention.query_projection = LowRank(layer.attention.query_projection)
        layer.attention.value_projection = LowRank(layer.attention.value_projection)
        layer.linear1 = LowRank(layer.linear1)
    # Not bit for bit: replaced projections are called one by one.
    torch.testing.assert_close(model(x, attn_mask=mask), before, rtol=0, atol=1e-5)
    model(x, attn_mask=mask).square().sum().backward()
    changed = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert all(f"layers.{i}.attention.value_projection.up.weight" in changed for i in range(2))
    assert not any("base" in name for name in changed)


@pytest.mark.parametrize("masks", ["none", "lengths"])
@pytest.mark.parametrize("kind", KINDS)
def test_compiles_without_graph_breaks(kind, masks):
    model = encoder(kind)
    lengths = LengthMask(torch.tensor([5, 3])) if masks == "lengths" else None
    mask = mask_of(kind)

    def run(x):
        return model(x, attn_mask=mask, length_mask=lengths)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 5, 6, requires_grad=True)
    given, wanted = compiled(x), run(x)
    torch.testing.assert_close(given, wanted)
    grads = [torch.autograd.grad(y.square().sum(), x)[0] for y in (given, wanted)]
    torch.testing.assert_close(*grads)


def test_compiled_layer_still_tells_listeners():
    dispatcher, heard = EventDispatcher(), []
    model = encoder("full", event_dispatcher=dispatcher)
    compiled = torch.compile(model, backend="aot_eager")
    x = torch.randn(2, 5, 6)
    silent = compiled(x)
    dispatcher.listen(AttentionEvent, heard.append)
    torch.testing.assert_close(compiled(x), silent)
    assert len(heard) == 2


@pytest.mark.parametrize("map_name", ["elu1", "favor"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(map_name, reentrant):
    """Recomputation sees the random features of the first computation."""
    x = torch.randn(2, 5, 6, requires_grad=True)
    grads = []
    for recompute in (False, True):
        torch.manual_seed(4)
        model = encoder("linear", feature_map=map_name).train()
        for _ in range(3):
            y = x
            for layer in model.layers:
                y = checkpoint(layer, y, use_reentrant=reentrant) if recompute else layer(y)
            grad = torch.autograd.grad(y.square().sum(), x) if not recompute else None
            if recompute:
                x.grad = None
                y.square().sum().backward()
                grad = (x.grad.clone(),)
        grads.append(grad[0])
    torch.testing.assert_close(*grads)


def test_mirror_shares_parameters_and_buffers():
    source = encoder("linear", feature_map="favor")
    target = encoder("linear", feature_map="favor", feature_seed=9)
    inner = "layers.1.attention.inner_attention.feature_map.omega"
    assert not torch.equal(source.state_dict()[inner], target.state_dict()[inner])
    make_mirror(source, target)
    x = torch.randn(2, 5, 6)
    source.eval(), target.eval()
    assert torch.equal(source(x), target(x))
    with torch.no_grad():
        source.layers[0].linear1.weight.add_(1.0)
    assert torch.equal(source(x), target(x))
    other = encoder("linear", value_dimensions=5)
    with pytest.raises(ValueError, match="want"):
        make_mirror(source, other)
    assert other.layers[0].linear1.weight.shape == (8, 10), "nothing was set"


def test_a_mirror_needs_the_parameters_alone():
    """Own buffers of a module, such as a table of positions, need not exist."""
    source, target = encoder("linear", feature_map="favor"), encoder("linear", feature_map="favor")
    for name, size in (("table", 7), ("longer", 7), ("shared", 7)):
        source.register_buffer(name, torch.ones(size))
    target.register_buffer("longer", torch.zeros(9))
    target.register_buffer("shared", torch.zeros(7))
    make_mirror(source, target)
    assert not hasattr(target, "table") and target.longer.shape == (9,)
    assert target.shared is source.shared
    smaller = encoder("linear", feature_map="favor", n_dims=12)
    with pytest.raises(ValueError, match="omega: want"):
        make_mirror(source, smaller)


def test_float64_and_bfloat16():
    model, x = encoder("linear"), torch.randn(2, 5, 6)
    wanted = model(x)
    double = copy.deepcopy(model).double()(x.double())
    torch.testing.assert_close(double.float(), wanted, atol=1e-5, rtol=1e-5)
    half = copy.deepcopy(model).bfloat16()(x.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), wanted, atol=0.1, rtol=0.1)


RANK = textwrap.dedent(
    """
    import os, sys, torch, torch.distributed as dist
    from tarn.builders import TransformerEncoderBuilder
    rank, port = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    torch.manual_seed(rank)  # other weights: the wrapper makes them equal
    model = TransformerEncoderBuilder.from_kwargs(
        n_layers=1, n_heads=2, query_dimensions=4, value_dimensions=3, dropout=0.0,
        feed_forward_dimensions=8, attention_type="linear", feature_map="favor",
    ).get()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(7)
    whole = torch.randn(4, 5, 6)
    for _ in range(2):
        optimiser.zero_grad()
        wrapped(whole[2 * rank : 2 * rank + 2]).square().mean().backward()
        optimiser.step()
    gathered = [None, None]
    dist.all_gather_object(gathered, {k: v.tolist() for k, v in model.state_dict().items()})
    assert gathered[0] == gathered[1], "ranks went apart"
    if rank == 0:
        torch.save(model.state_dict(), sys.argv[3])
    dist.destroy_process_group()
    os._exit(0)  # as the processes of tests/python/distributed do
    """
)


def test_two_processes_train_one_model(tmp_path):
    """Two gloo ranks on half a batch each stay equal and equal one process on
    the whole batch."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    saved = tmp_path / "model.pt"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), port, str(saved)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        errors = [rank.communicate(timeout=600)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert all(rank.returncode == 0 for rank in ranks), errors
    torch.manual_seed(0)
    model = encoder("linear", feature_map="favor", n_layers=1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(7)
    whole = torch.randn(4, 5, 6)
    for _ in range(2):
        optimiser.zero_grad()
        model(whole).square().mean().backward()
        optimiser.step()
    together = torch.load(saved)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(together[name], tensor, atol=1e-5, rtol=1e-5)


def test_wrong_masks_reach_the_caller():
    model = encoder("linear")
    with pytest.raises(ValueError, match="keeps all"):
        model(torch.randn(2, 5, 6), attn_mask=TriangularCausalMask(5))
    with pytest.raises(ValueError, match=r"want a mask \[5, 5\]"):
        model(torch.randn(2, 5, 6), attn_mask=FullMask(4))
