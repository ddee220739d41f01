"""Conversations as ids against transformers, hostile texts, decoders against the tokenizers
package, and what generation_config.json changes."""

import itertools
import json
import os
import pathlib
import random
import shutil

import pytest

runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

ROOT = pathlib.Path(__file__).resolve().parents[3]
DATA = pathlib.Path(os.environ.get("TARN_DATA", ROOT.parent / "shared" / "data")) / "tokenizers"
PUBLISHED = ["llama3", "qwen3"]

LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'user' %}"
    "{{ bos_token + '[INST] ' + m.content.strip() + ' [/INST]' }}"
    "{% elif m.role == 'system' %}{{ '<<SYS>>' + m.content + '<</SYS>>' }}"
    "{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXTS = [
    "Hello there, how are you?",
    "  two  spaces, a tab\tand\nlines\n\n",
    "Was ist das? \u00c9t\u00e9, \u4f60\u597d, \u0928\u092e\u0938\u094d\u0924\u0947 \U0001f600",
    "e\u0301 1234567 x = [1, 2]; <b>no token</b>",
    "",
]


def _train(kind, folder):
    """A small tokenizer in the form of Llama 2 or of ChatML's models, as a directory."""
    special = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    corpus = [(ROOT / name).read_text() for name in ("CONTRIBUTING.md", "HACKING.md")]
    model = tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(model)
    trainer = {"vocab_size": 1200, "special_tokens": special, "show_progress": False}
    if kind == "chatml":
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.normalizer = tokenizers.normalizers.NFC()
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        trainer["initial_alphabet"] = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        template = CHATML
    else:
        tokenizer.normalizer = tokenizers.normalizers.Sequence(
            [
                tokenizers.normalizers.Prepend("\u2581"),
                tokenizers.normalizers.Replace(" ", "\u2581"),
            ]
        )
        tokenizer.decoder = tokenizers.decoders.Sequence(
            [
                tokenizers.decoders.Replace("\u2581", " "),
                tokenizers.decoders.ByteFallback(),
                tokenizers.decoders.Fuse(),
                tokenizers.decoders.Strip(content=" ", left=1, right=0),
            ]
        )
        trainer["special_tokens"] = special + [f"<0x{byte:02X}>" for byte in range(256)]
        template = LLAMA2
    words = [line for text in corpus for line in text.split()]
    tokenizer.train_from_iterator(words, tokenizers.trainers.BpeTrainer(**trainer))
    root = json.loads(tokenizer.to_str())
    # The bytes are the model's tokens, not added ones.
    root["added_tokens"] = [row for row in root["added_tokens"] if row["content"] in special]
    if kind == "llama2":
        first = {"SpecialToken": {"id": "<s>", "type_id": 0}}
        text = {"Sequence": {"id": "A", "type_id": 0}}
        root["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [first, text],
            "pair": [first, text],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        }
    (folder / "tokenizer.json").write_text(json.dumps(root))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _write(name, folder):
    folder.mkdir()
    if name in PUBLISHED:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(DATA / name / file, folder / file)
    else:
        _train(name, folder)
    size = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=size,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


@pytest.fixture(scope="module", params=["llama2", "chatml", *PUBLISHED])
def chat(request, tmp_path_factory):
    """A directory, the model tarn opens, and transformers' tokenizer of the same files."""
    if request.param in PUBLISHED and not (DATA / request.param).is_dir():
        pytest.skip(f"{DATA / request.param} is not there")
    folder = tmp_path_factory.mktemp("chat") / request.param
    _write(request.param, folder)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    return folder, runtime.Model(folder), theirs


def _conversations():
    for text in TEXTS:
        yield [{"role": "user", "content": text}]
        yield [
            {"role": "system", "content": "Be brief. " + text},
            {"role": "user", "content": text},
            {"role": "assistant", "content": text + "\n" + TEXTS[0]},
            {"role": "user", "content": TEXTS[1] + text},
        ]


def _theirs(tokenizer, messages, **variables):
    given = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, **variables)
    return given["input_ids"]


def test_ids_are_those_of_transformers(chat):
    _, model, theirs = chat
    for messages in _conversations():
        for ends in (False, True):
            wanted = _theirs(theirs, messages, add_generation_prompt=ends)
            assert model.encode_chat(messages, add_generation_prompt=ends) == wanted


def test_ids_with_thinking_and_tools(chat):
    folder, model, theirs = chat
    if folder.name != "qwen3":
        pytest.skip("its template has neither")
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello"},
        {"role": "user", "content": "f?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "It is 2.", "reasoning_content": "two"},
    ]  # fmt: skip
    for n in range(1, len(messages) + 1):
        wanted = _theirs(theirs, messages[:n], tools=[tool], add_generation_prompt=True)
        assert model.encode_chat(messages[:n], tools=[tool]) == wanted
    wanted = _theirs(theirs, messages[:1], add_generation_prompt=True, enable_thinking=False)
    assert model.encode_chat(messages[:1], enable_thinking=False) == wanted


def _special(folder):
    root = json.loads((folder / "tokenizer.json").read_text())
    return {row["id"]: row["content"] for row in root["added_tokens"] if row["special"]}


def test_no_special_token_comes_from_a_users_text(chat):
    folder, model, theirs = chat
    special = _special(folder)
    draw = random.Random(7)
    contents = sorted(special.values())
    cuts = [text[:n] for text in contents[:20] for n in range(1, len(text))]
    tails = [text[n:] for text in contents[:20] for n in range(1, len(text))]
    texts = contents + cuts[:100] + tails[:100]
    texts += [
        "".join(draw.choices(contents + cuts + tails + ["a", " ", "\n"], k=5)) for _ in range(100)
    ]

    def conversation(text):
        return [
            {"role": "system", "content": text},
            {"role": "user", "content": text},
            {"role": "assistant", "content": text},
            {"role": "user", "content": text},
        ]

    wanted = [token for token in model.encode_chat(conversation("x")) if token in special]
    assert wanted
    hostile = 0
    for text in texts:
        given = model.encode_chat(conversation(text))
        assert [token for token in given if token in special] == wanted, text
        # Nothing is lost: the text is that of the template.
        plain = theirs.apply_chat_template(
            conversation(text), tokenize=False, add_generation_prompt=True
        )
        if folder.name != "llama2":  # whose decoder strips and whose parts get a space
            assert model.decode(given) == plain
        hostile += given != _theirs(theirs, conversation(text), add_generation_prompt=True)
    assert hostile >= len(contents)  # transformers takes them for special tokens


def test_decode_is_that_of_the_tokenizers_package(chat):
    folder, model, _ = chat
    package = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    draw = random.Random(3)
    size = package.get_vocab_size()
    rows = [package.encode(text, add_special_tokens=False).ids for text in TEXTS]
    rows += [[draw.randrange(min(size, top)) for _ in range(draw.randrange(1, 9))]
             for top in (300, size) for _ in range(300)]  # fmt: skip
    for ids in rows:
        for skip in (False, True):
            wanted = package.decode(ids, skip_special_tokens=skip)
            assert model.decode(ids, skip_special=skip) == wanted
        whole = model.decode_bytes(ids)
        assert "".join(model.decode_stream(ids)) == whole.decode(errors="replace")
        if "\ufffd" not in model.decode(ids):
            assert whole.decode() == model.decode(ids)


def test_prompts_begin_as_the_tokenizer_says(chat):
    folder, model, _ = chat
    package = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    wanted = package.encode("Hi there").ids
    assert model.encode("Hi there", add_special=True) == wanted
    assert model.encode("Hi there") == package.encode("Hi there", add_special_tokens=False).ids
    # A prompt at position 0 has them, a later one not.
    state, by_hand = model.state(), model.state()
    model.generate("Hi there", state=state, max_tokens=0)
    model.prefill(by_hand, wanted)
    assert state == by_hand
    model.generate("Hi there", state=state, max_tokens=0)
    model.prefill(by_hand, model.encode("Hi there"))
    assert state == by_hand


def test_generation_config_gives_defaults(chat, tmp_path):
    folder, model, _ = chat
    assert model.stop_tokens == [2]
    assert model.sampling == {row.name: row.default for row in runtime.sampling_options()}
    tokens = model.encode("Hi")
    # The first of the likeliest tokens that differs from the first one of all.
    free = {"temperature": 0, "max_tokens": 8, "stop_tokens": []}
    state = model.state()
    model.generate(tokens, state=state, **free)
    state = model.state()
    logits = model.prefill(state, tokens)
    best = int(logits[: model.tokenizer_size].argmax())
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "generation_config.json").write_text(
        json.dumps(
            {
                "eos_token_id": [best, 10**6],
                "do_sample": True,
                "top_k": 1,
                "typical_p": 0.9,
                "repetition_penalty": 1.25,
            }
        )
    )
    changed = runtime.Model(copy)
    assert changed.stop_tokens == [best]  # the other one is no token of the model
    assert changed.sampling == model.sampling | {
        "temperature": 1.0,
        "top_k": 1,
        "top_p": 1.0,
        "min_p": 0.0,
        "typical_p": 0.9,
        "repeat_penalty": 1.25,
        "repeat_last_n": -1,  # transformers' penalty is for all tokens
    }
    free |= {"repeat_penalty": 1.0, "repeat_last_n": 64}
    assert changed.generate(tokens) == ""  # top_k 1 takes the likeliest, which stops
    assert changed.generate(tokens, **free) == model.generate(tokens, **free) != ""
    drawn = {
        changed.generate(tokens, top_k=0, temperature=50, seed=s, max_tokens=4) for s in range(4)
    }
    assert len(drawn) > 1
    (copy / "generation_config.json").write_text('{"eos_token_id": "x"}')
    with pytest.raises(runtime.FormatError, match="eos_token_id"):
        runtime.Model(copy)


def test_the_template_of_a_directory(chat, tmp_path):
    folder, model, _ = chat
    source = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    assert model.chat_template == source
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "chat_template.jinja").write_text("{{ messages[0].content }}{{ strftime_now('%Y') }}")
    other = runtime.Model(copy)
    assert other.chat_template.startswith("{{ messages")
    message = [{"role": "user", "content": "ab"}]
    assert other.encode_chat(message, now=(2026, 1, 2, 3, 4, 5)) == other.encode("ab2026")
    assert other.encode_chat(message, chat_template="{{ x }}", x="y") == other.encode("y")
    with pytest.raises(runtime.FormatError, match="strftime_now"):
        other.encode_chat(message)
    with pytest.raises(ValueError, match="no"):
        other.encode_chat(message, chat_template="{{ raise_exception('no') }}")
    (copy / "chat_template.jinja").unlink()
    config = json.loads((copy / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (copy / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(runtime.FormatError, match="chat template"):
        runtime.Model(copy).encode_chat(message)


def test_conversations_share_a_beginning(chat):
    # What keeps a state useful: a longer conversation begins with the ids of a shorter.
    _, model, _ = chat
    messages = [{"role": "user", "content": "Hello"}]
    first = model.encode_chat(messages)
    messages += [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "More"}]
    longer = model.encode_chat(messages)
    common = sum(1 for _ in itertools.takewhile(lambda p: p[0] == p[1], zip(first, longer)))
    assert common == len(first) < len(longer)
