"""Published models as modules of tarn.models: fine-tuning with and without peft, and the way
back into directories."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch

import programs
import tarn
from tarn import models, runtime

transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime"))
cases = pytest.importorskip("test_published_models")
softmax = pytest.importorskip("test_published_softmax")
deltas = pytest.importorskip("test_published_deltas")
mambas = pytest.importorskip("test_published_mambas")
conv = pytest.importorskip("test_published_conv")
published = pytest.importorskip("published")

TOKENS = torch.from_numpy(np.random.default_rng(1).integers(0, published.VOCAB, (2, 70)))


def tarn_program(*arguments):
    done = subprocess.run(
        [str(programs.BUILD / "tarn"), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def fine_tune(model, steps=8):
    """Losses of some updates."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW(weights, lr=3e-3)
    losses = []
    model.train()
    for _ in range(steps):
        logits = model(TOKENS)
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten()
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    model.eval()
    return losses


def last_of(kind):
    """The last options of a type, which are those of most parts."""
    every = [case for file in (cases, softmax, deltas, mambas, conv) for case in file.CASES]
    return [keys for name, keys in every if name == kind][-1]


TUNED = (
    "llama", "qwen3", "qwen3_moe", "gemma3_text", "gpt2", "gpt_neox", "mamba", "mamba2",
    "granitemoehybrid", "qwen3_next", "qwen3_5_text", "olmo_hybrid", "minimax", "kimi_linear",
    "falcon_h1", "jamba", "nemotron_h", "lfm2_moe", "recurrent_gemma",
)  # fmt: skip


@pytest.mark.parametrize("kind", TUNED)
def test_a_fine_tuned_model_is_stored_and_published(kind, tmp_path):
    keys = last_of(kind)
    published.random_model(kind, keys).save_pretrained(tmp_path / "theirs")
    model = tarn.load_model(tmp_path / "theirs")
    losses = fine_tune(model)
    assert losses[-1] < losses[0]
    tarn.save_model(model, tmp_path / "ours")
    with torch.no_grad():
        wanted = model(TOKENS[:1])[0].numpy()
    opened = runtime.Model(tmp_path / "ours")
    published.assert_close(opened.score(opened.state(), TOKENS[0].numpy()), wanted)
    again = tarn.load_model(tmp_path / "ours").state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in model.state_dict().items())
    tarn_program("export", tmp_path / "ours", "--out", tmp_path / "back", "--type", kind)
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back").eval()
    published.assert_close(published.definer_logits(back, TOKENS[0].numpy()), wanted)


def test_peft_adapts_a_published_model(tmp_path):
    peft = pytest.importorskip("peft")
    published.random_model("qwen3", cases.DECODER).save_pretrained(tmp_path / "theirs")
    model = tarn.load_model(tmp_path / "theirs")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    adapted = peft.get_peft_model(
        model,
        peft.LoraConfig(r=4, target_modules=["query_projection", "value_projection", "linear2"]),
    )
    losses = fine_tune(adapted)
    assert losses[-1] < losses[0]
    with torch.no_grad():
        wanted = adapted(TOKENS[:1])[0].numpy()
    merged = adapted.merge_and_unload()
    tarn.save_model(merged, tmp_path / "ours")
    opened = runtime.Model(tmp_path / "ours")
    published.assert_close(opened.score(opened.state(), TOKENS[0].numpy()), wanted)
    changed = {
        name
        for name, tensor in merged.state_dict().items()
        if not torch.equal(tensor, before[name])
    }
    assert {name.split(".")[-2] for name in changed} == {
        "query_projection", "value_projection", "linear2",
    }  # fmt: skip


def test_a_step_continues_a_prompt(tmp_path):
    published.random_model(*cases.CASES[-1]).save_pretrained(tmp_path / "model")
    model = tarn.load_model(tmp_path / "model")
    with torch.no_grad():
        whole = model(TOKENS)
        _, state = model.prefill(TOKENS[:, :50])
        for column in range(50, 55):
            logits, state = model.step(TOKENS[:, column], state)
            torch.testing.assert_close(logits, whole[:, column], rtol=1e-3, atol=1e-5)


def test_shards_of_bf16_files(tmp_path):
    rounded = published.random_model("llama", cases.DECODER).to(torch.bfloat16)
    rounded.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    model = tarn.load_model(tmp_path / "model")
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    embedding = rounded.get_input_embeddings().weight
    assert torch.equal(model.state_dict()["value_embedding.weight"], embedding.float())


def test_tokenizers_come_along(tmp_path):
    published.random_model("llama", cases.DECODER).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"add_bos_token": true}')
    model = tarn.load_model(tmp_path / "model")
    assert model.config["tokenizer"] == "bpe"
    with pytest.raises(ValueError, match=r"tokenizer: want a tokenizer.json of kind 'bpe'"):
        tarn.save_model(model, tmp_path / "none")
    tarn.save_model(model, tmp_path / "ours", tokenizer=tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        wanted = (tmp_path / "model" / name).read_bytes()
        assert (tmp_path / "ours" / name).read_bytes() == wanted


def test_faults_are_named(tmp_path):
    folder = tmp_path / "model"
    published.random_model("llama", cases.DECODER).save_pretrained(folder)
    weights = safetensors_torch.load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.weight"
    faults = [
        ({name: weights[name][:, 1:].clone()}, rf"model.safetensors: tensor '{name}'.*want shape"),
        ({"model.extra": torch.zeros(3)}, "model.extra'.*a tensor that belongs to no part"),
    ]
    for changes, message in faults:
        safetensors_torch.save_file(weights | changes, folder / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            tarn.load_model(folder)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"silu"', '"tanh"'))
    with pytest.raises(ValueError, match="config.json: hidden_act: want 'silu', got 'tanh'"):
        tarn.load_model(folder)
    with pytest.raises(OSError):
        tarn.load_model(tmp_path / "none")


def test_the_module_is_a_language_model(tmp_path):
    published.random_model("llama", cases.DECODER).save_pretrained(tmp_path / "model")
    assert isinstance(tarn.load_model(str(tmp_path / "model")), models.LanguageModel)
