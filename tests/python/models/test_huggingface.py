"""tarn.huggingface: transformers' Trainer, generate and Auto classes, peft and the calls of
lm-evaluation-harness on tarn's models, in tarn's directories."""

import json

import numpy as np
import pytest
import torch

import tarn
from tarn import models, runtime

transformers = pytest.importorskip("transformers")
huggingface = pytest.importorskip("tarn.huggingface")
TarnConfig, TarnForCausalLM = huggingface.TarnConfig, huggingface.TarnForCausalLM

KEYS = dict(vocab_size=61, d_model=24, n_layers=2, n_heads=3, d_ff=40, tokenizer="ids")
STACKS = {
    "linear": dict(KEYS, attention="linear", positions="rotary"),
    "hybrid": dict(
        KEYS, d_model=32, n_heads=4, positions="rotary", norm_kind="rms", feed_forward="swiglu",
        tied_head=True, layers=["gdn", {"mixer": "full", "window": 5}],
    ),
    "mamba2+full": dict(KEYS, n_heads=4, layers=["mamba2+full"], positions="learned", max_positions=40),
    "rwkv7": dict(KEYS, d_model=32, n_heads=2, attention="rwkv7", feed_forward="channel-mix"),
}  # fmt: skip
TOKENS = torch.from_numpy(np.random.default_rng(1).integers(0, 61, (3, 17)))


@pytest.fixture(params=STACKS)
def model(request):
    return TarnForCausalLM(TarnConfig(**STACKS[request.param])).eval()


@pytest.fixture
def linear():
    return TarnForCausalLM(TarnConfig(**STACKS["linear"])).eval()


def padded(side):
    """Rows of 17, 11 and 4 tokens, and their mask."""
    mask = torch.ones_like(TOKENS)
    for row, length in enumerate((17, 11, 4)):
        mask[row, length:] = 0
    return (TOKENS, mask) if side == "right" else (TOKENS.flip(1), mask.flip(1))


def test_logits_and_loss_are_those_of_the_module(model):
    plain = models.LanguageModel(model.config.tarn)
    plain.load_state_dict(model.state_dict())
    wanted = plain(TOKENS)
    labels = TOKENS.masked_fill(TOKENS % 5 == 0, -100)
    out = model(TOKENS, labels=labels)
    torch.testing.assert_close(out.logits, wanted, rtol=0, atol=0)
    loss = torch.nn.functional.cross_entropy(
        wanted[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
    )
    torch.testing.assert_close(out.loss, loss)
    out.loss.backward()
    loss.backward()
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=name)
    by_number = model(TOKENS, labels=labels, num_items_in_batch=torch.tensor(10))
    count = (labels[:, 1:] != -100).sum()
    torch.testing.assert_close(by_number.loss, loss * count / 10)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("use_cache", [False, True])
def test_padding_has_no_influence(side, use_cache, model):
    tokens, mask = padded(side)
    out = model(tokens, attention_mask=mask, use_cache=use_cache)
    for row in range(3):
        valid = mask[row].bool()
        alone = model(tokens[row, valid][None]).logits[0]
        torch.testing.assert_close(out.logits[row, valid], alone, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_cache_continues_in_pieces(model):
    whole = model(TOKENS).logits
    cache, rows = None, []
    for begin, end in ((0, 5), (5, 6), (6, 7), (7, 15), (15, 17)):
        out = model(TOKENS[:, begin:end], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        assert cache.get_seq_length() == end
        rows.append(out.logits)
    torch.testing.assert_close(torch.cat(rows, 1), whole, rtol=1e-4, atol=1e-5)
    kept = model(TOKENS[:, :5], use_cache=True).past_key_values
    for _ in range(2):  # a cache is a value
        again = model(TOKENS[:, 5:], past_key_values=kept).logits
        torch.testing.assert_close(again, whole[:, 5:], rtol=1e-4, atol=1e-5)
    last = model(TOKENS, logits_to_keep=2).logits
    torch.testing.assert_close(last, whole[:, -2:])


def test_greedy_text_is_that_of_the_module(model):
    wanted = models.generate(model.language_model, TOKENS, 9, temperature=0)
    options = dict(max_new_tokens=9, do_sample=False, pad_token_id=0)
    given = model.generate(TOKENS, **options)
    assert torch.equal(given[:, 17:], wanted)
    assert torch.equal(model.generate(TOKENS, use_cache=False, **options), given)


def test_rows_padded_on_the_left_write_what_they_write_alone(model):
    tokens, mask = padded("left")
    options = dict(max_new_tokens=8, do_sample=False, pad_token_id=0)
    together = model.generate(tokens, attention_mask=mask, **options)
    for row in range(3):
        alone = model.generate(tokens[row, mask[row].bool()][None], **options)
        assert torch.equal(together[row, -8:], alone[0, -8:])


def test_beams_reorder_the_cache(model):
    options = dict(max_new_tokens=7, num_beams=4, do_sample=False, pad_token_id=0,
                   num_return_sequences=2)  # fmt: skip
    given = model.generate(TOKENS, **options)
    assert given.shape == (6, 24)
    assert torch.equal(model.generate(TOKENS, use_cache=False, **options), given)


def test_samples_follow_the_seed(linear):
    def sample(seed):
        transformers.set_seed(seed)
        return linear.generate(TOKENS, max_new_tokens=12, do_sample=True, top_k=20, pad_token_id=0)

    assert torch.equal(sample(1), sample(1))
    assert not torch.equal(sample(1), sample(2))


def test_generation_continues_a_cache(linear):
    options = dict(do_sample=False, pad_token_id=0, return_dict_in_generate=True)
    first = linear.generate(TOKENS[:1], max_new_tokens=5, **options)
    more = torch.cat([first.sequences, TOKENS[1:2, :3]], 1)
    cached = linear.generate(
        more, past_key_values=first.past_key_values, max_new_tokens=5, **options
    )
    assert torch.equal(
        cached.sequences, linear.generate(more, max_new_tokens=5, **options).sequences
    )


def test_directories_are_tarns_own(model, tmp_path):
    model.generation_config.eos_token_id = 7
    model.save_pretrained(tmp_path / "saved")
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    assert names == {"config.json", "model.safetensors", "generation_config.json"}
    opened = runtime.Model(tmp_path / "saved")
    logits = opened.score(opened.state(), TOKENS[0].numpy())
    with torch.no_grad():
        wanted = model(TOKENS).logits
    np.testing.assert_allclose(logits, wanted[0].numpy(), rtol=1e-3, atol=1e-5)
    plain = tarn.load_model(tmp_path / "saved").state_dict()
    found = [
        TarnForCausalLM.from_pretrained(tmp_path / "saved"),
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved"),
    ]
    for one in found:
        assert type(one) is TarnForCausalLM and not one.training
        assert one.generation_config.eos_token_id == 7
        assert one.config.tarn == model.config.tarn
        assert one.state_dict().keys() == plain.keys() == model.state_dict().keys()
        with torch.no_grad():
            torch.testing.assert_close(one(TOKENS).logits, wanted, rtol=0, atol=0)
    config = transformers.AutoConfig.from_pretrained(tmp_path / "saved")
    assert config.vocab_size == 61 and config.hidden_size == model.config.tarn["d_model"]
    tarn.save_model(found[0].language_model, tmp_path / "again")
    assert "model_type" not in json.loads((tmp_path / "again" / "config.json").read_text())
    TarnForCausalLM.from_pretrained(tmp_path / "again")


def test_published_directories_open_and_become_tarns(tmp_path):
    keys = dict(vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, bos_token_id=None,
                eos_token_id=5)  # fmt: skip
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**keys)).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "tokenizer.json").write_text("{}")
    model = TarnForCausalLM.from_pretrained(tmp_path / "theirs")
    with torch.no_grad():
        torch.testing.assert_close(
            model(TOKENS).logits, theirs(TOKENS).logits, rtol=1e-4, atol=1e-5
        )
    model.save_pretrained(tmp_path / "ours")
    assert (tmp_path / "ours" / "tokenizer.json").read_text() == "{}"
    assert TarnForCausalLM.from_pretrained(tmp_path / "ours").generation_config.eos_token_id == 5


def trainer(model, folder, **options):
    text = torch.tensor(list(b"it is the cat that sat on the mat and not the rat that ran. " * 20))
    rows = [{"input_ids": row, "labels": row} for row in text.unfold(0, 32, 8)]
    given = dict(
        max_steps=20, per_device_train_batch_size=8, learning_rate=3e-3, logging_steps=5,
        save_steps=10, report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    arguments = transformers.TrainingArguments(str(folder), **given | options)
    return transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:4]
    )


def test_trainer_trains_saves_and_resumes(tmp_path):
    def fresh():
        torch.manual_seed(0)
        keys = dict(d_model=24, n_layers=2, n_heads=2, positions="rotary")
        return TarnForCausalLM(TarnConfig(**keys))

    whole = trainer(fresh(), tmp_path / "runs")
    whole.train()
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] - 0.5
    assert abs(whole.evaluate()["eval_loss"] - losses[-1]) < 0.5
    runtime.Model(tmp_path / "runs" / "checkpoint-20").generate("it is", max_tokens=3)
    resumed = trainer(fresh(), tmp_path / "runs")
    resumed.train(resume_from_checkpoint=str(tmp_path / "runs" / "checkpoint-10"))
    for (name, one), other in zip(
        resumed.model.named_parameters(), whole.model.parameters(), strict=True
    ):
        torch.testing.assert_close(one, other, msg=name)


def test_trainer_keeps_the_best_checkpoint(tmp_path):
    model = TarnForCausalLM(TarnConfig(d_model=24, n_layers=1, n_heads=2))
    options = dict(eval_strategy="steps", eval_steps=10, load_best_model_at_end=True,
                   gradient_accumulation_steps=2)  # fmt: skip
    best = trainer(model, tmp_path / "runs", **options)
    best.train()
    stored = tarn.load_model(best.state.best_model_checkpoint).state_dict()
    assert all(torch.equal(stored[name], weight) for name, weight in model.state_dict().items())


def test_peft_adapts_it(linear, tmp_path):
    peft = pytest.importorskip("peft")
    before = {name: weight.clone() for name, weight in linear.state_dict().items()}
    options = peft.LoraConfig(r=4, target_modules=["query_projection", "linear1"],
                              task_type="CAUSAL_LM")  # fmt: skip
    adapted = peft.get_peft_model(linear, options)
    optimiser = torch.optim.SGD((w for w in adapted.parameters() if w.requires_grad), lr=0.5)
    for _ in range(3):
        loss = adapted(input_ids=TOKENS, labels=TOKENS).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert adapted.generate(input_ids=TOKENS, max_new_tokens=3, pad_token_id=0).shape == (3, 20)
    merged = adapted.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    changed = {
        name.rsplit(".", 2)[-2]
        for name, weight in tarn.load_model(tmp_path / "merged").state_dict().items()
        if not torch.equal(weight, before[name])
    }
    assert changed == {"query_projection", "linear1"}


@torch.no_grad()
def test_the_calls_of_lm_evaluation_harness(linear):
    """HFLM's: logits of contexts padded on the right, loglikelihoods of their ends, and
    texts that go on until a word, from contexts padded on the left."""
    assert isinstance(linear.device, torch.device) and linear.dtype == torch.float32
    linear.tie_weights()
    assert linear.config.model_type == "tarn"
    tokens, mask = padded("right")
    logits = linear(tokens).logits  # no mask: causal rows do not read what comes after
    for row in range(3):
        valid = mask[row].bool()
        alone = linear(tokens[row, valid][None]).logits[0]
        torch.testing.assert_close(logits[row, valid], alone, rtol=1e-4, atol=1e-5)

    class Until(transformers.StoppingCriteria):
        def __call__(self, ids, scores, **options):
            return bool((ids[:, -1] >= 0).all() and ids.shape[1] >= 20)

    tokens, mask = padded("left")
    out = linear.generate(
        input_ids=tokens,
        attention_mask=mask,
        max_length=30,
        stopping_criteria=transformers.StoppingCriteriaList([Until()]),
        pad_token_id=0,
        use_cache=True,
        do_sample=False,
    )
    assert out.shape == (3, 20)


@torch.no_grad()
def test_lm_evaluation_harness_runs_it(linear, tmp_path):
    """Where the package is installed: loglikelihoods of an object and of a directory."""
    harness = pytest.importorskip("lm_eval.models.huggingface")
    instances = pytest.importorskip("lm_eval.api.instance")
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {f"w{index}": index for index in range(2, 61)} | {"pad": 0, "end": 1}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="pad"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="pad", eos_token="end"
    )
    linear.save_pretrained(tmp_path)
    asked = [("w3 w4 w5", " w7"), ("w9", " w8 w11 w12"), ("w2 w2 w2 w30", " w31 w32")]
    requests = [
        instances.Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(asked)
    ]
    for given in (linear, str(tmp_path)):
        model = harness.HFLM(
            pretrained=given, tokenizer=tokenizer, batch_size=2, max_length=40, device="cpu"
        )
        for (context, end), (found, _) in zip(asked, model.loglikelihood(requests), strict=True):
            ids, count = tokenizer(context + end)["input_ids"], len(end.split())
            logs = linear(torch.tensor([ids])).logits[0].log_softmax(-1)
            rows = range(len(ids) - count, len(ids))
            wanted = sum(logs[row - 1, ids[row]] for row in rows)
            assert found == pytest.approx(float(wanted), rel=1e-5)


FAULTS = [
    (lambda: TarnConfig(d_modle=3), ValueError, "d_modle: want a known key .did you mean 'd_model'"),
    (lambda: TarnConfig(d_model=-3), ValueError, "d_model"),
    (lambda: TarnForCausalLM(TarnConfig(arch="encoder", task="classify", n_classes=3)), ValueError,
     "arch"),
    (lambda: TarnForCausalLM.from_pretrained("/none"), FileNotFoundError, "none: want a model dir"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), FAULTS)
def test_faults_are_named(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_wrong_calls_are_named(linear, tmp_path):
    holes = torch.ones_like(TOKENS)
    holes[1, 4] = 0
    for options, message in (
        (dict(attention_mask=holes), "attention_mask: want rows of ones"),
        (dict(attention_mask=holes[:, :3]), r"attention_mask: want \[3, 17\], or"),
    ):
        with pytest.raises(ValueError, match=message):
            linear(TOKENS, **options)
    with pytest.raises(TypeError, match="past_key_values: want what a call returned, got tuple"):
        linear(TOKENS, past_key_values=())
    with pytest.raises(ValueError, match="input_ids: want "):
        linear(TOKENS[0])
    assert linear.resize_token_embeddings(61) is linear.value_embedding
    with pytest.raises(ValueError, match="new_num_tokens: want vocab_size .*61, got 70"):
        linear.resize_token_embeddings(70)
    linear.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="quantization_config: want none"):
        TarnForCausalLM.from_pretrained(tmp_path, quantization_config={"bits": 4})
    with pytest.raises(ValueError, match="push_to_hub: want none"):
        linear.save_pretrained(tmp_path, push_to_hub=True)
    half = TarnForCausalLM.from_pretrained(tmp_path, dtype="bfloat16")
    assert half.dtype == torch.bfloat16
