"""Masks: values, sizes, errors, and how attention modules use them."""

import copy
import pickle

import pytest
import torch

from tarn.attention import _masks
from tarn.masking import (
    BaseMask,
    FullMask,
    LengthMask,
    MaskError,
    TriangularCausalMask,
    attention_mask_from_pytorch,
    key_mask_from_pytorch,
)


def test_base_mask_asks_for_a_matrix():
    with pytest.raises(NotImplementedError, match="bool_matrix"):
        _ = BaseMask().bool_matrix


@pytest.mark.parametrize("arguments", [(5, 7), (5,), (0, 3), (3, 0)])
def test_full_mask_of_sizes(arguments):
    sizes = (arguments[0], arguments[-1])
    for mask in (FullMask(*arguments), FullMask(N=sizes[0], M=sizes[1])):
        assert tuple(mask.shape) == sizes and mask.all_ones
        assert mask._mask is None, "no matrix before it is asked for"
        assert mask.bool_matrix.shape == sizes and mask.bool_matrix.all()


def test_full_mask_is_a_copy_and_bool():
    kept = torch.rand(4, 6) > 0.5
    before, mask = kept.clone(), FullMask(kept)
    kept.logical_not_()
    assert torch.equal(mask.bool_matrix, before) and not mask.all_ones
    for wrong in (torch.ones(3, 3), torch.ones(3, 3, dtype=torch.uint8)):
        with pytest.raises(ValueError, match="want torch.bool"):
            FullMask(wrong)
    with pytest.raises(ValueError, match="size"):
        FullMask()


def test_matrices():
    kept = torch.rand(4, 6) > 0.5
    mask = FullMask(kept)
    assert torch.equal(mask.float_matrix, kept.float())
    assert torch.equal(mask.additive_matrix, torch.log(kept.float()))
    finite = mask.additive_matrix_finite
    assert torch.equal(finite == 0, kept) and finite[~kept].eq(-1e24).all()
    assert mask.shape == (4, 6) and repr(mask) == "FullMask[4, 6]"


def test_length_mask():
    lengths = torch.tensor([3, 0, 5])
    mask = LengthMask(lengths, max_len=6)
    wanted = torch.tensor([[j < n for j in range(6)] for n in (3, 0, 5)])
    assert torch.equal(mask.bool_matrix, wanted) and not mask.all_ones
    lengths[0] = 1
    assert mask.lengths.tolist() == [3, 0, 5], "a copy"
    assert LengthMask(torch.tensor([3, 0, 5])).shape == (3, 5)
    assert LengthMask(torch.tensor([4, 4])).all_ones
    full = LengthMask.full(2, 4)
    assert full._all_ones and torch.equal(full.bool_matrix, torch.ones(2, 4) == 1)
    with pytest.raises(TypeError, match="integers"):
        LengthMask(torch.ones(3))
    with pytest.raises(ValueError, match="1 axis"):
        LengthMask(torch.ones(3, 1, dtype=torch.int64))


def test_lengths_out_of_range_are_errors():
    for lengths, max_len in (([2, -1], 3), ([-1], None), ([2, 4], 3)):
        with pytest.raises(ValueError, match="lengths: want from 0 to max_len"):
            LengthMask(torch.tensor(lengths), max_len=max_len)
    assert LengthMask(torch.tensor([], dtype=torch.int64), max_len=3).shape == (0, 3)
    assert LengthMask(torch.tensor([0, 3]), max_len=3).lengths.tolist() == [0, 3]


def test_lengths_of_any_mask():
    wanted = LengthMask(torch.tensor([3, 0, 5]), max_len=6)
    mask = FullMask(wanted.bool_matrix)
    assert mask.lengths.tolist() == [3, 0, 5]
    gap = wanted.bool_matrix.clone()
    gap[0, 1] = False
    with pytest.raises(ValueError, match="ones followed by zeros"):
        _ = FullMask(gap).lengths


@pytest.mark.parametrize("sizes", [(5, 5), (3, 7), (7, 3), (1, 4), (4, 1)])
@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
def test_causal_mask_and_its_dense_form(sizes, offset):
    rows, columns = sizes
    mask = TriangularCausalMask(rows, keys=columns, offset=offset)
    wanted = torch.tensor([[j <= i + offset for j in range(columns)] for i in range(rows)])
    assert torch.equal(mask.bool_matrix, wanted)
    assert mask.all_ones == bool(wanted.all())
    dense = FullMask(wanted)
    found = dense.causal_offset
    if found is not None:
        assert torch.equal(torch.ones(rows, columns).tril(found) == 1, wanted)
    if 0 <= offset < columns - 1:
        assert found == offset
    assert dense.lower_triangular == (found == 0)


def test_dense_mask_is_causal_only_if_it_is_exactly():
    kept = torch.ones(5, 5).tril() == 1
    assert FullMask(kept).lower_triangular and TriangularCausalMask(5).lower_triangular
    for i, j in ((0, 4), (4, 0), (2, 1), (2, 3)):
        other = kept.clone()
        other[i, j] = ~other[i, j]
        assert not FullMask(other).lower_triangular
    assert not FullMask(5).lower_triangular and not FullMask(5, 0).lower_triangular


def test_masks_copy_and_pickle():
    for mask in (FullMask(3), LengthMask(torch.tensor([1, 2])), TriangularCausalMask(3)):
        for twin in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
            assert type(twin) is type(mask)
            assert torch.equal(twin.bool_matrix, mask.bool_matrix)


def test_pytorch_masks_are_negated():
    padding = torch.tensor([[False, False, True], [False, True, True]])
    assert key_mask_from_pytorch(padding).lengths.tolist() == [2, 1]
    added = torch.zeros(2, 3).masked_fill(padding, float("-inf"))
    assert torch.equal(key_mask_from_pytorch(added).bool_matrix, ~padding)
    square = torch.nn.Transformer.generate_square_subsequent_mask(4)
    assert attention_mask_from_pytorch(square).lower_triangular
    heads = torch.rand(6, 4, 5) > 0.5
    assert torch.equal(
        attention_mask_from_pytorch(heads, n_heads=3).bool_matrix, ~heads.view(2, 3, 4, 5)
    )
    with pytest.raises(ValueError, match="bias"):
        attention_mask_from_pytorch(torch.randn(3, 3))
    with pytest.raises(ValueError, match="multiple of 4 heads"):
        attention_mask_from_pytorch(heads, n_heads=4)
    with pytest.raises(TypeError):
        key_mask_from_pytorch([True])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        key_mask_from_pytorch(torch.zeros(2, 3, dtype=torch.int64))


QUERIES, KEYS = torch.zeros(2, 3, 4, 5), torch.zeros(2, 6, 4, 5)


def test_sizes_of_attention_masks_are_checked():
    """Defect 4 of docs/migration.md: fast-transformers takes a 7 x 7 mask for 3 tokens."""
    for wrong in (
        TriangularCausalMask(7),
        FullMask(7),
        FullMask(3, 5),
        TriangularCausalMask(3, keys=5),
        FullMask(torch.ones(3, 3, 6) == 1),
        FullMask(torch.ones(2, 3, 3, 6) == 1),
    ):
        with pytest.raises(MaskError, match=r"want a mask \[3, 6\]"):
            _masks.attention_arguments("Kind", wrong, QUERIES, KEYS)
    assert issubclass(MaskError, ValueError) and issubclass(MaskError, RuntimeError)
    for right in (
        FullMask(3, 6),
        TriangularCausalMask(3),
        TriangularCausalMask(3, keys=6, offset=3),
        FullMask(torch.ones(1, 3, 6) == 1),
        FullMask(torch.ones(2, 4, 3, 6) == 1),
        None,
    ):
        _masks.attention_arguments("Kind", right, QUERIES, KEYS)
    with pytest.raises(TypeError, match="want a mask of tarn.masking"):
        _masks.attention_arguments("Kind", torch.ones(3, 6), QUERIES, KEYS)  # type: ignore[arg-type]


def test_a_mask_of_another_class_is_known_by_its_matrix():
    class Own:
        def __init__(self, kept):
            self.bool_matrix = kept

    kept, lengths = torch.rand(3, 6) > 0.5, torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    call = ("Kind",)
    given = _masks.attention_arguments(*call, Own(kept), QUERIES, KEYS)  # type: ignore[arg-type]
    assert torch.equal(given["attention_mask"], kept)
    own = Own(lengths)  # of 0 and 1, as fast-transformers allows
    given = _masks.key_arguments(*call, own, 2, 4)  # type: ignore[arg-type]
    assert torch.equal(given["key_mask"], lengths == 1)
    assert _masks.query_lengths_of(*call, own, 2, 4).tolist() == [3, 4]  # type: ignore
    lower = Own(torch.ones(3, 6).tril() == 1)
    assert _masks.causal_offset_of(*call, lower, QUERIES, KEYS) == 0  # type: ignore[arg-type]
    with pytest.raises(MaskError, match=r"want a mask \[3, 6\] of queries and keys, got \[6, 3\]"):
        _masks.keeps_all(*call, Own(kept.t()), QUERIES, KEYS)  # type: ignore[arg-type]


def test_arguments_of_attention_masks():
    call = ("Kind",)
    assert _masks.attention_arguments(*call, FullMask(3, 6), QUERIES, KEYS) == {}
    causal = _masks.attention_arguments(*call, TriangularCausalMask(3, offset=2), QUERIES, KEYS)
    assert causal == {"causal": True, "causal_offset": 2}
    kept = torch.rand(2, 3, 6) > 0.5
    given = _masks.attention_arguments(*call, FullMask(kept), QUERIES, KEYS)
    assert torch.equal(given["attention_mask"], kept.unsqueeze(1))
    assert _masks.causal_offset_of(*call, FullMask(torch.ones(3, 6).tril(1) == 1), QUERIES, KEYS)
    for not_causal in (None, FullMask(3, 6), FullMask(torch.ones(3, 6).triu() == 1)):
        with pytest.raises(MaskError, match="lower triangular"):
            _masks.causal_offset_of(*call, not_causal, QUERIES, KEYS)
    with pytest.raises(MaskError, match="keeps all"):
        _masks.want_no_attention_mask(*call, TriangularCausalMask(3), QUERIES, KEYS)
    # One query under a causal mask reads one key, not all.
    with pytest.raises(MaskError, match="keeps all"):
        _masks.want_no_attention_mask(*call, TriangularCausalMask(1), QUERIES[:, :1], KEYS)
    _masks.want_no_attention_mask(*call, FullMask(torch.ones(3, 6) == 1), QUERIES, KEYS)


def test_arguments_of_key_masks():
    call = ("Kind",)
    assert _masks.key_arguments(*call, None, 2, 6) == {}
    assert _masks.key_arguments(*call, LengthMask.full(2, 6), 2, 6) == {}
    lengths = LengthMask(torch.tensor([2, 5]), max_len=6)
    assert torch.equal(
        _masks.key_arguments(*call, lengths, 2, 6)["key_lengths"], torch.tensor([2, 5])
    )
    holes = torch.rand(2, 6) > 0.5
    given = _masks.key_arguments(*call, FullMask(holes), 2, 6)
    assert torch.equal(given["key_mask"], holes)
    for wrong in (lengths, FullMask(3, 6)):
        with pytest.raises(MaskError, match=r"want a mask \[3, 7\]"):
            _masks.key_arguments(*call, wrong, 3, 7)
    assert _masks.query_lengths_of(*call, FullMask(2, 6), 2, 6) is None
    dense = FullMask(lengths.bool_matrix)
    assert _masks.query_lengths_of(*call, dense, 2, 6).tolist() == [2, 5]
    with pytest.raises(ValueError, match="ones followed by zeros"):
        _masks.query_lengths_of(*call, FullMask(~lengths.bool_matrix), 2, 6)
