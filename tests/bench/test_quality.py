"""The sums and pages of bench/quality.py, from logits and results that are made up."""

import json

import numpy as np
import pytest
import quality
import quality_models
import quality_page
import quality_sides
import quality_sums as sums
import report


def logits_of(text, sharpness=0.0, vocab=256):
    """For each window rows that give the byte that follows `sharpness` more than others."""
    found = []
    for part in sums.windows(text):
        rows = np.zeros((len(part), vocab), np.float32)
        following = np.frombuffer(part, np.uint8)[1:]
        rows[np.arange(len(following)), following] = sharpness
        found.append(rows)
    return found


@pytest.mark.parametrize(
    ("length", "lengths"),
    [(0, []), (1, []), (2, [2]), (sums.WINDOW, [sums.WINDOW]), (sums.WINDOW + 1, [sums.WINDOW])],
)
def test_windows_have_a_byte_to_predict(length, lengths):
    assert [len(one) for one in sums.windows(b"a" * length)] == lengths
    assert b"".join(sums.windows(b"ab" * length)) == b"ab" * length


def test_equal_probabilities_are_eight_bits_a_byte():
    text = bytes(range(256)) * 9
    assert sums.bits_per_byte(logits_of(text), text) == pytest.approx(8)


def test_bits_are_those_of_the_byte_that_follows():
    text = b"abcd" * 600
    sharp = np.log(255.0)  # half of the probability
    assert sums.bits_per_byte(logits_of(text, sharp), text) == pytest.approx(1, abs=1e-6)
    assert sums.bits_per_byte(logits_of(text, 1000), text) == 0  # without overflow


def test_as_many_windows_as_logits():
    with pytest.raises(ValueError):
        sums.bits_per_byte(logits_of(b"ab" * 10)[:0], b"ab" * 10)


def test_divergence_by_hand():
    p = np.log(np.array([[0.5, 0.25, 0.25]], np.float32))
    q = np.log(np.array([[0.25, 0.5, 0.25]], np.float32))
    assert sums.kl_per_byte([p], [q]) == pytest.approx(0.5 - 0.25)
    assert sums.kl_per_byte([p, p], [p + 3, p - 2]) == pytest.approx(0, abs=1e-7)


def test_the_worst_text_counts():
    texts = {"a": b"ab" * 1500, "b": b"cd" * 1500}
    before = {name: logits_of(text, 5.0) for name, text in texts.items()}
    after = {"a": before["a"], "b": logits_of(texts["b"], 4.0)}
    found = sums.compared(before, after, texts)
    assert found["added"]["a"] == 0 and found["kl"]["a"] == 0 and found["error"]["a"] == 0
    assert found["worst"] == found["added"]["b"] > 0 and found["kl"]["b"] > 0


def test_the_error_is_that_of_the_windows_means():
    text = b"ab" * sums.WINDOW
    before = logits_of(text)
    after = [logits_of(text, 1.0)[0], before[1]]
    changes = [sums.bits_per_byte([after[0]], sums.windows(text)[0]) - 8, 0.0]
    assert sums.standard_error(before, after, text) == pytest.approx(abs(changes[0]) / 2)
    assert sums.standard_error(before[:1], after[:1], text[: sums.WINDOW]) == 0


def test_bytes_of_tensors_are_without_the_header(tmp_path):
    file = tmp_path / "a.safetensors"
    header = json.dumps({}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + b"12345")
    assert quality_sides._tensor_bytes(file) == 5


def test_a_way_that_is_there_is_not_measured_again(tmp_path, capsys):
    texts = {"a": b"ab" * 20}
    of = quality.Measured(tmp_path / "m.json", texts)
    of.found = {"parameters": 4, "float32": {}}
    of._of = lambda: {"a": logits_of(texts["a"])}
    runs = {"run": {"a": logits_of(texts["a"], 1.0)}}
    of.add("tarn", "int8", lambda: ({"tensor_bytes": 5}, runs))
    assert "10.00 bits" in capsys.readouterr().out
    again = quality.Measured(tmp_path / "m.json", texts)
    again.add("tarn", "int8", lambda: pytest.fail("measured again"))
    assert again.found == of.found and again.found["tarn"]["int8"]["run"]["worst"] < 0


def test_small_gains_are_no_minus_zero():
    values = run(-0.00002, 0.0) | {"added": {"a": -0.00002, "b": -0.00003}}
    assert quality_page._added(values) == ("+0.0000", "0.0001")


def test_pages_leave_out_what_was_not_measured():
    of = results()
    del of["sizes"][quality_page.SHOWN]["models"]["two"]["llama.cpp"]["Q4_K_M"]
    del of["sizes"][quality_page.SHOWN]["models"]["one"]["tarn"]["int4"]
    text, guide = pages(of)
    assert "against Q4_K_M |" not in text and "against Q4_K_M, ends" in text
    assert "| int4 in groups of 64, calibrated / Q4_K_M |  |" in guide


def test_sizes_fill_blocks_of_256():
    assert all(size.d_model % 256 == 0 for size in quality_models.SIZES.values())
    assert set(quality_models.FOR_LLAMA) < set(quality_models.KINDS)


def test_the_results_are_not_taken_for_those_of_times():
    folder = quality.RESULTS.parent.parent
    assert all(
        "title" in one for tables in report._stored(folder).values() for one in tables.values()
    )


# --- Pages --------------------------------------------------------------------


def run(added, kl):
    values = {"added": {"a": added, "b": 0.0}, "error": {"a": 0.0001, "b": 0.0}}
    return values | {"kl": {"a": kl, "b": kl}, "worst": max(added, 0.0)}


def results():
    def facts(bits, added, kl, **more):
        return {"bits_per_weight": bits, "run": run(added, kl), "exact": run(added, kl), **more}

    tarn = {way: facts(4.5, 0.004, 0.0002) for way in quality_sides.WAYS}
    tarn["int8"] = facts(8.25, 0.0007, 0.0001)
    theirs = {
        way: facts(5.0, 0.02, 0.0004, types={"Q4_K": 3, "F32": 1}) for way in quality_sides.TYPES
    }
    models = {
        "one": {
            "parameters": 4000,
            "steps": 12,
            "float32": {"a": 2.5, "b": 2.25},
            "tarn": dict(tarn),
        },
        "two": {
            "parameters": 4000,
            "steps": 12,
            "float32": {"a": 2.5},
            "tarn": tarn,
            "llama.cpp": theirs,
        },
    }
    training = {"seq_len": 128, "batch": 8}
    size = {"window": 1024, "held_out_bytes": 2048, "training": training, "models": models}
    return {"sizes": {quality_page.SHOWN: size}}


def pages(of):
    old = f"before\n{quality_page.BEGIN}\nold\n{quality_page.END}\nafter\n"
    found = quality_page.texts(of, old)
    return found[quality_page.PAGE], found[quality_page.GUIDE]


def test_the_page_tells_which_targets_are_met():
    of = results()
    text, _ = pages(of)
    assert (
        "| int8: bits per byte added | 0.001 | 0.0005 | 0.00070 | yes, the aim is missed |" in text
    )
    assert "| int4: bits per byte added | 0.03 | 0.02 | 0.00400 | yes |" in text
    of["sizes"][quality_page.SHOWN]["models"]["one"]["tarn"]["int4"]["run"]["worst"] = 0.04
    assert "| 0.04000 | **no** |" in pages(of)[0]


def test_the_page_compares_with_llama_cpp_where_it_ran():
    text, _ = pages(results())
    assert (
        "two: int4 in groups of 64, calibrated against Q4_K_M | +0.0040 / +0.0200 | 0.50x | 0.90x |"
        in text
    )
    assert "one: int4" not in text
    assert "Q4_K_M: 75 % Q4_K, 25 % F32" in text
    assert text.isascii()


def test_tables_replace_those_of_the_guide():
    _, guide = pages(results())
    assert guide.startswith("before\n") and guide.endswith("after\n") and "old" not in guide
    assert "| weights | one | two |" in guide
    assert "| int8 / Q8_0 | 8.25 / 5.00: 0.1 / 0.4 |" in guide
    with pytest.raises(ValueError, match="want"):
        quality_page.texts(results(), "no tables")


def test_the_documents_are_written_from_the_results():
    stored = json.loads(quality.RESULTS.read_text())
    for path, text in quality_page.texts(stored, quality_page.GUIDE.read_text("utf-8")).items():
        assert path.read_text("utf-8") == text, f"run python bench/quality.py --page: {path}"
