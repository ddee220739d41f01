"""Figures on stderr begin on a line of their own where they meet the text of stdout."""

import os
import subprocess

PROGRAM = os.environ.get("TARN_PROGRAM", "build/tarn")


def test_figures_do_not_follow_the_text_on_its_line(models, tmp_path):
    words = [
        PROGRAM,
        "generate",
        models / "linear",
        "--prompt",
        "abc",
        "--max-tokens",
        "8",
        "--seed",
        "3",
    ]
    alone = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    assert alone.stderr.startswith(b"prompt ")
    # One pipe, and one file.
    both = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    with open(tmp_path / "both", "wb") as file:
        subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=True)
    for joined in (both.stdout, (tmp_path / "both").read_bytes()):
        assert joined.startswith(alone.stdout + b"\nprompt "), joined
    # What is on stdout is the text alone in any case.
    json = subprocess.run(
        [*words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    ).stdout
    assert json.startswith(b"{")
