"""The model in the clone, examples/fortunes: small, checked, and it writes words."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples" / "fortunes"
# A text that no one trained on: the model knows English words, not this text.
TEXT = (
    "It is better to know some of the questions than all of the answers, "
    "and there is nothing so easy to learn as what you want to believe.\n"
)


def test_it_is_small_and_whole(tarn):
    assert sum(file.stat().st_size for file in MODEL.iterdir()) <= 1 << 20
    assert tarn("verify", MODEL).returncode == 0
    config = json.loads((MODEL / "config.json").read_text())
    assert {"linear", "local"} == {
        str(one.get("mixer", one)) if isinstance(one, dict) else one for one in config["layers"]
    }


def test_it_writes_words(tarn):
    done = tarn("generate", MODEL, "--prompt", "A ", "--max-tokens", 600, "--seed", 1)
    assert done.returncode == 0, done.stderr
    fortunes = pathlib.Path("/usr/share/games/fortunes")
    known = set()
    for file in fortunes.iterdir():
        if not file.suffix:
            known |= set(re.findall(r"[a-z']+", file.read_text(errors="replace").lower()))
    text = done.stdout.decode(errors="replace")
    words = re.findall(r"[a-z']+", text.lower())[1:-1]
    assert len(words) > 60
    longer = [word for word in words if len(word) > 3]
    assert sum(word in known for word in longer) > 0.6 * len(longer), text
    again = tarn("generate", MODEL, "--prompt", "A ", "--max-tokens", 600, "--seed", 1)
    assert again.stdout == done.stdout


def test_it_knows_english(tarn, tmp_path):
    """Bits a byte of a text that is not in the fortunes, against 4.2 for the frequencies of
    single letters."""
    (tmp_path / "text").write_text(TEXT)
    done = tarn("eval", MODEL, tmp_path / "text", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bits_per_byte"] < 3.0
