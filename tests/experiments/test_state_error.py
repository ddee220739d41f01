import torch

from experiments import state_error


def test_rows_stand_at_powers_of_ten_and_the_end():
    shares = []
    rows = state_error.state_error(12_345, heads=2, width=8, told=shares.append)
    assert [row["position"] for row in rows] == [1_000, 10_000, 12_345]
    assert shares[-1] == 1.0 and shares == sorted(shares)
    for row in rows:  # sums of float32: better than 2^-24 a block, and not exact
        assert 0 < row["S"] < 1e-5 and 0 < row["z"] < 1e-5 and 0 < row["out"] < 1e-5


def test_state_is_the_sum_by_definition():
    random = torch.Generator().manual_seed(7)
    blocks = [
        [torch.randn((1, n, 1, 4), generator=random).double() for _ in range(3)]
        for n in (256, 256, 88)
    ]  # as state_error draws 600 tokens
    k, v = (torch.cat([block[i] for block in blocks], 1)[0, :, 0] for i in (1, 2))
    phi = torch.where(k > 0, k + 1, k.exp())
    got = state_error.state_error(600, heads=1, width=4, seed=7)
    kept = {"S": phi.T @ v, "z": phi.sum(0)}
    single = {"S": phi.float().T @ v.float(), "z": phi.float().sum(0)}
    for name, want in kept.items():  # of the size that float32 sums have
        lost = float((single[name].double() - want).abs().max() / want.abs().max())
        assert 0 < got[0][name] < 100 * max(lost, 2**-24)
