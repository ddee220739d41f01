"""mamba_ssm's functions of Mamba-2 (Dao and Gu 2024, arXiv 2405.21060) and Mamba-1, by its
names and layouts: states have values first, [B, H, P, N]."""

from tarn.fla.mamba.selective_scan import selective_scan_fn
from tarn.fla.mamba.ssd_combined import (
    mamba_chunk_scan_combined,
    mamba_split_conv1d_scan_combined,
)
from tarn.fla.mamba.state_update import selective_state_update

__all__ = [
    "mamba_chunk_scan_combined",
    "mamba_split_conv1d_scan_combined",
    "selective_scan_fn",
    "selective_state_update",
]
