"""tarn's modules under torch's own wrappers: DistributedDataParallel, fully_shard and
torch.distributed.checkpoint, against one process that has all rows."""

import copy
import pathlib
from collections.abc import Callable

import pytest
import ranks
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import tarn.builders
import tarn.masking
import tarn.models
import tarn.ops

ROWS, TOKENS, SYMBOLS, WIDTH = 4, 9, 11, 16
BOUND = {"rtol": 1e-5, "atol": 1e-5}


class _Operator(torch.nn.Module):
    """One product and tarn.ops.linear_attention, for those who write their layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(SYMBOLS, 3 * WIDTH)
        self.head = torch.nn.Linear(WIDTH, SYMBOLS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        parts = self.embedding(tokens).view(*tokens.shape, 3, 2, WIDTH // 2).unbind(2)
        return self.head(tarn.ops.linear_attention(*parts).flatten(2))


class _Builder(torch.nn.Module):
    """An encoder of the builders."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(SYMBOLS, WIDTH)
        self.encoder = tarn.builders.TransformerEncoderBuilder.from_kwargs(
            attention_type="causal-linear",
            n_layers=2,
            n_heads=2,
            query_dimensions=WIDTH // 2,
            value_dimensions=WIDTH // 2,
            feed_forward_dimensions=2 * WIDTH,
            dropout=0.0,
        ).get()
        self.head = torch.nn.Linear(WIDTH, SYMBOLS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = tarn.masking.TriangularCausalMask(tokens.shape[1])
        return self.head(self.encoder(self.embedding(tokens), mask))


def _model(kind: str) -> torch.nn.Module:
    torch.manual_seed(5)
    if kind == "operator":
        return _Operator()
    if kind == "builder":
        return _Builder()
    layers = {"linear": ["linear"], "hybrid": ["linear", "full"]}[kind]
    return tarn.models.LanguageModel(
        vocab_size=SYMBOLS, d_model=WIDTH, n_layers=2, n_heads=2, layers=layers
    )


def _rows(step: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(step)
    return torch.randint(0, SYMBOLS, (ROWS, TOKENS + 1), generator=draw)


def _update(model: torch.nn.Module, optimiser: torch.optim.Optimizer, rows: torch.Tensor) -> None:
    logits = model(rows[:, :-1])
    optimiser.zero_grad()
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).backward()
    optimiser.step()


def _sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    # A step is in proportion to the gradient: a mistake in one is a mistake in the other.
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)


def _own(rows: torch.Tensor) -> torch.Tensor:
    return rows.chunk(dist.get_world_size())[dist.get_rank()]


def _trained_alone(kind: str, steps: int) -> torch.nn.Module:
    model = _model(kind)
    optimiser = _sgd(model)
    for step in range(steps):
        _update(model, optimiser, _rows(step))
    return model


def _whole(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: one.full_tensor() if isinstance(one, DTensor) else one.detach()
        for name, one in model.state_dict().items()
    }


def _agree(ours: dict[str, torch.Tensor], theirs: torch.nn.Module) -> None:
    wanted = theirs.state_dict()
    assert ours.keys() == wanted.keys()
    for name, one in ours.items():
        torch.testing.assert_close(
            one, wanted[name], **BOUND, msg=lambda text, name=name: f"{name}: {text}"
        )


def _under_ddp(kind: str) -> None:
    model = _model(kind)
    untrained = copy.deepcopy(model.state_dict())
    wrapped = DistributedDataParallel(model)
    optimiser = _sgd(wrapped)
    for step in range(3):
        _update(wrapped, optimiser, _own(_rows(step)))
    _agree(_whole(model), _trained_alone(kind, 3))
    assert any(not torch.equal(one, untrained[name]) for name, one in model.state_dict().items())


def _each(work: Callable[[str], None]) -> None:
    """All kinds in the same processes: to start them takes longer than the work."""
    for kind in ("operator", "builder", "linear", "hybrid"):
        ranks.told(kind, work, kind)


@pytest.mark.parametrize("size", [2, 4])
def test_data_parallel_is_one_process_with_all_rows(size):
    ranks.run(size, _each, _under_ddp)


def _sharded(kind: str) -> torch.nn.Module:
    model = _model(kind)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in getattr(model, "layers", []):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _under_fsdp(kind: str) -> None:
    model = _sharded(kind)
    assert all(isinstance(one, DTensor) for one in model.parameters())
    optimiser = _sgd(model)
    for step in range(3):
        _update(model, optimiser, _own(_rows(step)))
    _agree(_whole(model), _trained_alone(kind, 3))


@pytest.mark.parametrize("size", [2, 4])
def test_fully_sharded_is_one_process_with_all_rows(size):
    ranks.run(size, _each, _under_fsdp)


def _save_at(folder: str, steps: int) -> None:
    model = _sharded("linear")
    optimiser = _sgd(model)
    for step in range(steps):
        _update(model, optimiser, _own(_rows(step)))
    weights, state = get_state_dict(model, optimiser)
    checkpoint.save({"model": weights, "optimiser": state}, checkpoint_id=folder)


def _go_on(folder: str, first: int, last: int) -> None:
    model = _sharded("linear")
    optimiser = _sgd(model)
    weights, state = get_state_dict(model, optimiser)
    checkpoint.load({"model": weights, "optimiser": state}, checkpoint_id=folder)
    set_state_dict(model, optimiser, model_state_dict=weights, optim_state_dict=state)
    for step in range(first, last):
        _update(model, optimiser, _own(_rows(step)))
    _agree(_whole(model), _trained_alone("linear", last))


def test_a_checkpoint_of_two_ranks_resumes_with_four(tmp_path: pathlib.Path):
    """Weights and momenta: the run that four ranks end is that of one process."""
    ranks.run(2, _save_at, str(tmp_path / "saved"), 2)
    ranks.run(4, _go_on, str(tmp_path / "saved"), 2, 4)
