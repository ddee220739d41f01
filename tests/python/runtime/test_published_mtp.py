"""The extra prediction head of published models as a source of draft tokens: its logits
against those of the class that defines it, and texts against those without drafts."""

import json
import shutil
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers.modeling_layers").MtpModel  # noqa: B018
safetensors_torch = pytest.importorskip("safetensors.torch")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
published = pytest.importorskip("published")
mtp = pytest.importorskip("published_mtp")
programs = pytest.importorskip("programs")

BASE = dict(
    vocab_size=97,
    hidden_size=36,
    intermediate_size=52,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=16,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=10,
    linear_value_head_dim=14,
    pad_token_id=None,
    eos_token_id=None,
)
EXPERTS = dict(
    num_experts=5,
    num_experts_per_tok=2,
    moe_intermediate_size=20,
    shared_expert_intermediate_size=28,
)
MODELS = {
    "dense": ("qwen3_5_text", BASE),
    "tied": ("qwen3_5_text", {**BASE, "tie_word_embeddings": True, "attention_bias": True}),
    "experts": ("qwen3_5_moe_text", {**BASE, **EXPERTS}),
    "next": ("qwen3_next", {**BASE, **EXPERTS}),
}
PROMPT = np.random.default_rng(3).integers(0, 97, 40).tolist()
GREEDY = dict(temperature=0.0, stop_tokens=())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """name -> model of transformers, its head, its folder."""
    models = {}

    def make(name):
        if name not in models:
            kind, keys = MODELS[name]
            model, head = mtp.model_and_head(kind, keys)
            folder = mtp.save(kind, model, head, tmp_path_factory.mktemp(name) / "model")
            models[name] = model, head, folder
        return models[name]

    return make


def tarn(*arguments, code=0):
    done = subprocess.run(
        [str(programs.BUILD / "tarn"), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    return done


def without_head(weights):
    for name in [name for name in weights if name.startswith("mtp.")]:
        del weights[name]


def all_tokens(session):
    return [*session.tokens.tolist(), *session.pending.tolist()]


def check_drafts(session, model, head, most, count):
    """Draws tokens and compares the logits of the last token of each draft."""
    compared = 0
    for _ in range(count):
        text = all_tokens(session)
        drafted = session.draft_counts[0]
        if session.next() is None:
            break
        if session.draft_counts[0] - drafted != most:
            continue  # none, or one that was cut short
        wanted = mtp.draft_logits(model, head, text, most)[-1].numpy()
        published.assert_close(session._held.draft_logits, wanted)
        compared += 1
    return compared


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("most", [1, 3])
def test_drafts_are_those_of_the_class_that_defines_the_head(name, most, made):
    model, head, folder = made(name)
    session = runtime.Session(runtime.Model(folder))
    session._held.draft_mtp(most, False)
    session.begin(PROMPT, 60, **GREEDY)
    assert check_drafts(session, model, head, most, 30) >= 10
    session.mark("here")
    at = session.position
    assert check_drafts(session, model, head, most, 8) >= 3
    session.rollback("here")
    assert session.position == at
    # The head forgets as much, and reads the same tokens again.
    assert check_drafts(session, model, head, most, 30) >= 5
    fork = session.fork()
    for one in (session, fork):
        one.begin([5, 6, 7], 30, **GREEDY)
        assert check_drafts(one, model, head, most, 12) >= 4


def test_a_long_prompt_is_read_in_pieces(made):
    model, head, folder = made("dense")
    session = runtime.Session(runtime.Model(folder))
    session._held.draft_mtp(2, False)
    prompt = np.random.default_rng(4).integers(0, 97, 1500).tolist()
    session.append(prompt[:700])
    session.begin(prompt[700:], 20, **GREEDY)
    assert check_drafts(session, model, head, 2, 12) >= 3


def test_it_drafts_from_what_it_has_read(made):
    """A session that begins to speculate late has no rows of the tokens before."""
    _, _, folder = made("dense")
    session = runtime.Session(runtime.Model(folder))
    session.append(PROMPT)
    session._held.draft_mtp(2, False)
    session.begin([4], 40, **GREEDY)
    drawn = [token for token, _ in iter(session.next, None)]
    assert len(drawn) == 40 and session.draft_counts[0] > 0


def text_of(session, count, **options):
    session.begin(PROMPT, count, **options)
    return [token for token, _ in iter(session.next, None)]


OPTIONS = {
    "greedy": GREEDY,
    "sampled": dict(temperature=0.9, seed=5, stop_tokens=()),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weights", ["f32", "int8"])
@pytest.mark.parametrize("how", OPTIONS)
def test_texts_are_those_without_drafts(name, weights, how, made):
    opened = runtime.Model(made(name)[2], weights=weights)
    wanted = text_of(runtime.Session(opened), 150, **OPTIONS[how])
    for most in (1, 4, 12):
        session = runtime.Session(opened)
        session._held.draft_mtp(most, False)
        assert text_of(session, 150, **OPTIONS[how]) == wanted
        drafted, accepted = session.draft_counts
        assert 0 <= accepted < drafted
        assert session.position == len(PROMPT) + 150
    session = runtime.Session(opened)
    session.speculate("mtp")
    session.begin(PROMPT, 150, **OPTIONS[how])
    first = [session.next()[0] for _ in range(60)]
    fork = session.fork()
    for one in (session, fork):
        assert first + [token for token, _ in iter(one.next, None)] == wanted


def copying_head(head):
    """Makes the head give the model's own rows: it predicts the token again that the model
    predicted before, which a text that repeats one token has right."""
    with torch.no_grad():
        for name, weight in head.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")) or name.startswith(
                "layers.0.mtp_block.mlp.experts.down_proj"
            ):
                weight.zero_()


def test_a_head_that_is_right_saves_passes(tmp_path):
    kind, keys = MODELS["dense"]
    model, head = mtp.model_and_head(kind, keys)
    width = keys["hidden_size"]
    copying_head(head)
    with torch.no_grad():
        # The head passes the model's row on; the norms around it keep its direction.
        layer = head.layers[0]
        layer.eh_proj.weight.copy_(torch.cat([torch.zeros(width, width), torch.eye(width)], 1))
        layer.hnorm.weight.zero_()
        layer.post_norm.weight.copy_(model.model.norm.weight)
        model.model.norm.weight.zero_()
        layer.post_norm.weight.zero_()
        # Each token is predicted from one row, whatever the text is.
        for block in model.model.layers:
            for name, weight in block.named_parameters():
                if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                    weight.zero_()
        model.model.embed_tokens.weight.copy_(
            model.model.embed_tokens.weight[:1].expand(97, -1).clone()
        )
    opened = runtime.Model(mtp.save(kind, model, head, tmp_path / "model"))
    wanted = text_of(runtime.Session(opened), 100, **GREEDY)
    session = runtime.Session(opened)
    session._held.draft_mtp(4, False)
    assert text_of(session, 100, **GREEDY) == wanted
    drafted, accepted = session.draft_counts
    assert accepted == drafted > 60


@pytest.mark.parametrize("name", MODELS)
def test_the_head_survives_every_conversion(name, made, tmp_path):
    _, _, folder = made(name)
    kind, _ = MODELS[name]
    own, back, rounded = tmp_path / "own", tmp_path / "back", tmp_path / "int8"
    tarn("import", folder, "--out", own)
    tarn("verify", own)
    tarn("export", own, "--to", "hf", "--type", kind, "--out", back)
    before = safetensors_torch.load_file(folder / "model.safetensors")
    after = safetensors_torch.load_file(back / "model.safetensors")
    heads = [name for name in before if name.startswith("mtp.")]
    assert len(heads) > 10
    # Shared numbers are fused or not as transformers writes the model's own.
    opened = [runtime.Model(path) for path in (folder, own, back)]
    wanted = text_of(runtime.Session(opened[0]), 40, **GREEDY)
    logits = []
    for model in opened:
        session = runtime.Session(model)
        session._held.draft_mtp(3, False)
        assert text_of(session, 40, **GREEDY) == wanted
        logits.append(session._held.draft_logits)
    assert np.array_equal(logits[0], logits[1])
    assert np.array_equal(logits[0], logits[2])
    config = json.loads((back / "config.json").read_text())
    assert config[mtp.COUNTS.get(kind, mtp.COUNT)] == 1
    assert {name for name in after if name.startswith("mtp.")} <= {*heads, *after}
    tarn("quantize", own, "--weights", "int8", "--out", rounded)
    for path, weights in ((own, "int8"), (rounded, "auto")):
        session = runtime.Session(runtime.Model(path, weights=weights))
        session._held.draft_mtp(3, False)
        text_of(session, 40, **GREEDY)
        logits.append(session._held.draft_logits)
        assert session.draft_counts[0] > 0


def gguf_file(name, made, tmp_path, edit=lambda tensors: None):
    """The model as llama.cpp's converter writes it, with the head as one more layer."""
    recurrent = pytest.importorskip("gguf_recurrent")
    _, head, folder = made(name)
    plain = tmp_path / "plain"
    shutil.copytree(folder, plain)
    mtp.change_weights(plain, without_head)
    config = json.loads((plain / "config.json").read_text())
    layers = config["num_hidden_layers"]
    at = f"model.layers.{layers}."
    block = {
        name.replace("mtp.layers.0.", at): tensor
        for name, tensor in mtp.of_each_expert(mtp.head_tensors(head)).items()
    }
    shift = lambda norm: block.pop(f"mtp.{norm}.weight") + 1  # noqa: E731
    added = {
        "eh_proj": block.pop("mtp.fc.weight"),
        "enorm": shift("pre_fc_norm_embedding"),
        "hnorm": shift("pre_fc_norm_hidden"),
        "shared_head_norm": shift("norm"),
    }

    def add(_, tensors):
        own = {**config, "num_hidden_layers": layers + 1}
        tensors.update(recurrent.tensors_of(own, block))
        for part, tensor in added.items():
            tensors[f"blk.{layers}.nextn.{part}.weight"] = tensor.contiguous()
        edit(tensors)

    return recurrent.convert(plain, tmp_path / "model.gguf", edit=add, later_layers=1)


@pytest.mark.parametrize("name", ["dense", "experts", "next"])
def test_files_of_llama_cpp_have_the_head(name, made, tmp_path):
    model, head, _ = made(name)
    file = gguf_file(name, made, tmp_path)
    session = runtime.Session(runtime.Model(file))
    session._held.draft_mtp(2, False)
    session.begin(PROMPT, 40, **GREEDY)
    assert check_drafts(session, model, head, 2, 20) >= 5
    tarn("import", file, "--out", tmp_path / "own")
    session = runtime.Session(runtime.Model(tmp_path / "own"))
    session._held.draft_mtp(2, False)
    session.begin(PROMPT, 40, **GREEDY)
    assert check_drafts(session, model, head, 2, 20) >= 5


def test_a_head_of_llama_cpp_with_other_parts_is_left_out(made, tmp_path):
    """Such as a separate embedding. One that is not whole is refused."""

    def embedding(tensors):
        tensors["blk.4.nextn.embed_tokens.weight"] = torch.ones(97, 36)

    session = runtime.Session(runtime.Model(gguf_file("dense", made, tmp_path, embedding)))
    with pytest.raises(ValueError, match="want one with an extra prediction head"):
        session.speculate("mtp")
    shutil.rmtree(tmp_path / "plain")
    file = gguf_file(
        "dense", made, tmp_path, lambda tensors: tensors.pop("blk.4.attn_k_norm.weight")
    )
    done = tarn("generate", file, "--prompt", "1 2", "--max-tokens", 2, code=3)
    assert done.stderr.count("\n") == 1 and "attn_k_norm" in done.stderr


def test_a_file_for_llama_cpp_is_written_without_the_head(tmp_path):
    kind, keys = MODELS["dense"]
    model, head = mtp.model_and_head(kind, {**keys, "linear_value_head_dim": 10})
    folder = mtp.save(kind, model, head, tmp_path / "model")
    done = tarn("export", folder, "--to", "gguf", "--out", tmp_path / "model.gguf")
    assert "prediction head" in done.stdout + done.stderr
    opened = runtime.Model(tmp_path / "model.gguf")
    wanted = published.definer_logits(model, PROMPT)
    published.assert_close(opened.score(opened.state(), np.array(PROMPT)), wanted)
    with pytest.raises(ValueError, match="got none"):
        runtime.Session(opened).speculate("mtp")


def test_modules_do_not_have_the_head(made, tmp_path):
    tarn_package = pytest.importorskip("tarn")
    model, _, folder = made("dense")
    own = tmp_path / "own"
    tarn("import", folder, "--out", own)
    tokens = torch.tensor(PROMPT)[None]
    wanted = model(tokens).logits.detach().numpy()
    for path in (folder, own):
        module = tarn_package.load_model(path)
        published.assert_close(module(tokens).detach().numpy(), wanted)


def test_a_state_file_does_not_depend_on_the_head(made, tmp_path):
    _, _, folder = made("dense")
    without = tmp_path / "without"
    shutil.copytree(folder, without)

    mtp.change_weights(without, without_head)
    model = runtime.Model(folder)
    state = model.state()
    model.score(state, np.array(PROMPT))
    state.save(tmp_path / "state")
    runtime.Model(without).load_state(tmp_path / "state")


def changed_config(folder, **keys):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


NO_HEAD = [
    ("none", {}, "got none"),
    ("layers", {"mtp_num_hidden_layers": 2}, "got one of 2 layers"),
    ("embedding", {"mtp_use_dedicated_embeddings": True}, "separate embedding"),
    ("zero", {"mtp_num_hidden_layers": 0}, "got none"),
]


@pytest.mark.parametrize(("what", "keys", "message"), NO_HEAD, ids=[row[0] for row in NO_HEAD])
def test_a_model_without_a_head_says_so(what, keys, message, made, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(made("dense")[2], folder)
    changed_config(folder, **keys)
    if what == "none":
        mtp.change_weights(folder, without_head)
    session = runtime.Session(runtime.Model(folder))
    session.speculate("ngram")
    with pytest.raises(ValueError, match=f"want one with an extra prediction head.*{message}"):
        session.speculate("mtp")
    prompt = ("--prompt", "1 2 3", "--max-tokens", 4)
    tarn("generate", folder, *prompt)
    done = tarn("generate", folder, *prompt, "--speculate", "mtp", code=2)
    assert "--speculate" in done.stderr and message in done.stderr
    assert done.stderr.count("\n") == 1


def without(name):
    return lambda weights: weights.pop(name)


def cut(name):
    return lambda weights: weights.update({name: weights[name][:-1].clone()})


HOSTILE = [
    *[without(name) for name in ("mtp.fc.weight", "mtp.norm.weight",
                                 "mtp.layers.0.self_attn.k_norm.weight",
                                 "mtp.layers.0.mlp.up_proj.weight")],
    *[cut(name) for name in ("mtp.fc.weight", "mtp.pre_fc_norm_hidden.weight",
                             "mtp.layers.0.self_attn.q_proj.weight",
                             "mtp.layers.0.mlp.down_proj.weight")],
]  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE)
def test_a_head_that_is_not_whole_is_refused(change, made, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(made("dense")[2], folder)
    mtp.change_weights(folder, change)
    done = tarn("generate", folder, "--prompt", "1 2", "--max-tokens", 2, code=3)
    assert done.stderr.count("\n") == 1 and "mtp." in done.stderr
    with pytest.raises(ValueError, match="mtp"):
        runtime.Model(folder)


def test_an_own_directory_has_all_of_the_head_or_none(made, tmp_path):
    own = tmp_path / "own"
    tarn("import", made("experts")[2], "--out", own)
    mtp.change_weights(own, without("mtp.layers.0.router.weight"))
    done = tarn("generate", own, "--prompt", "1 2", "--max-tokens", 2, code=3)
    assert "mtp.layers.0.router.weight" in done.stderr and done.stderr.count("\n") == 1


def test_files_that_changed_are_noticed(made, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(made("dense")[2], folder)
    opened = runtime.Model(folder)
    changed = safetensors_torch.load_file(folder / "model.safetensors")
    changed["model.norm.weight"] += 1
    safetensors_torch.save_file(changed, tmp_path / "other", {"format": "pt"})
    (tmp_path / "other").rename(folder / "model.safetensors")
    with pytest.raises(ValueError, match="changed since"):
        runtime.Session(opened).speculate("mtp")


def test_the_command_line_and_the_server_draft_with_it(made):
    _, _, folder = made("next")
    options = (folder, "--prompt", " ".join(map(str, PROMPT)), "--max-tokens", 50, "--json",
               "--temperature", 0.7, "--seed", 3)  # fmt: skip
    plain = json.loads(tarn("generate", *options).stdout)
    drafted = json.loads(tarn("generate", *options, "--speculate", "mtp").stdout)
    assert drafted["text"] == plain["text"]
    assert 0 <= drafted["accepted_tokens"] <= drafted["drafted_tokens"]
    assert json.loads(tarn("info", folder, "--json").stdout)["mtp_layers"] == 1
