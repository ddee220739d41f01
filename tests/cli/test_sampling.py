"""The flags of sampling of `tarn generate` and `tarn chat`: one for each option."""

import json

import pytest


def flags_of(text):
    return {word.rstrip(",") for word in text.split() if word.startswith("--")}


def generated(tarn, folder, *arguments):
    done = tarn("generate", folder, "--prompt", "ab", "--max-tokens", 30, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["text"]


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_help_lists_every_option_with_its_default(tarn, command):
    text = tarn(command, "--help").stdout.decode()
    wanted = {
        "--logit-bias", "--repeat-last-n", "--repeat-penalty", "--presence-penalty",
        "--frequency-penalty", "--dry-multiplier", "--dry-base", "--dry-allowed-length",
        "--dry-penalty-last-n", "--dry-sequence-breakers", "--top-n-sigma", "--top-k",
        "--typical-p", "--top-p", "--min-p", "--xtc-probability", "--xtc-threshold",
        "--temperature", "--dynatemp-range", "--dynatemp-exponent", "--mirostat",
        "--mirostat-tau", "--mirostat-eta", "--min-keep", "--samplers",
    }  # fmt: skip
    assert wanted <= flags_of(text)
    assert '["\\n",":","\\"","*"]' in "".join(text.split())


def test_flags_reach_the_sampler(tarn, models):
    folder = models / "linear"
    plain = generated(tarn, folder, "--temperature", 0)
    once = generated(
        tarn, folder, "--temperature", 0, "--presence-penalty", 2, "--repeat-penalty", 10,
        "--frequency-penalty", 2, "--repeat-last-n", -1,
    )  # fmt: skip
    assert once != plain
    biased = ("--logit-bias", "113=100", "--logit-bias", "65=false")
    assert generated(tarn, folder, *biased) == "q" * 30
    # Without the stage of the temperature 100 counts for nothing.
    one = ("--samplers", "top_k;min_p", "--top-k", 1, "--temperature", 100)
    assert generated(tarn, folder, *one) == plain
    dry = ("--temperature", 0, "--logit-bias", "113=20", "--dry-multiplier", 10)
    stopped = generated(tarn, folder, *dry)
    assert "q" * 7 not in stopped
    # A repetition does not reach over a breaker.
    assert generated(tarn, folder, *dry, "--dry-sequence-breakers", "q") == "q" * 30
    assert generated(tarn, folder, *dry, "--dry-sequence-breakers", "") == stopped


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--samplers", "topk"), "samplers"),
        (("--samplers", "top_k;top_k"), "top_k twice"),
        (("--logit-bias", "5"), "logit_bias"),
        (("--logit-bias", "5=1000"), "logit_bias"),
        (("--dry-sequence-breakers", "x" * 41), "1 to 40 bytes"),
        (("--mirostat", "3"), "mirostat"),
        (("--repeat-penalty", "0"), "repeat_penalty"),
        (("--repeat-last-n", "-2"), "repeat-last-n"),
        (("--xtc-probability", "nan"), "xtc_probability"),
    ],
)
def test_values_out_of_range_are_refused(tarn, arguments, words):
    done = tarn("generate", "nowhere", *arguments)
    assert done.returncode == 2 and words in done.stderr.decode(), done.stderr


def test_a_bias_of_no_token_is_refused(tarn, models):
    done = tarn("generate", models / "linear", "--prompt", "a", "--logit-bias", "9999=1")
    assert done.returncode == 2 and b"logit_bias" in done.stderr
