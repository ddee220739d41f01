"""Random models of the classes that define published formats, and how the runtime's logits
are compared with theirs. Imports torch and transformers: for test files that skip first."""

import numpy as np
import torch
import transformers

from tarn import runtime

VOCAB = 97


def random_model(kind, keys, seed=0):
    """A model whose every weight differs from where it began, norms and biases too."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **keys)
    return disturb(transformers.AutoModelForCausalLM.from_config(config).eval())


def disturb(model):
    """The model, its weights moved from where they began."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("A_log", "dt_bias", "dt_proj.bias")):
                continue
            if name.endswith(("igate_preact.bias", "ifgate_preact.bias")):
                weight.normal_()  # where they begin, tokens hardly write
            weight.add_(torch.randn_like(weight), alpha=0.3 / weight.shape[-1] ** 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith(("correction_bias", "expert_bias")):  # of routers
                buffer.normal_(0, 0.3)
    return model


def assert_close(given, wanted):
    """Within 1e-5 of the root mean square, and 2e-4 anywhere, of logits of that size."""
    size = np.sqrt(np.mean(wanted**2))
    error = np.abs(given - wanted)
    assert np.sqrt(np.mean(error**2)) <= 1e-5 * size
    assert error.max() <= 2e-4 * size


def definer_logits(model, tokens):
    with torch.no_grad():
        return model(torch.tensor(tokens)[None]).logits[0].numpy()


def assert_opens_exactly(folder, wanted, tokens):
    """The runtime's logits of a directory: at once, in pieces and by steps."""
    opened = runtime.Model(folder)
    assert_close(opened.score(opened.state(), tokens), wanted)
    state = opened.state()
    pieces = [opened.score(state, piece) for piece in np.split(tokens, [1, 7, 100])]
    assert_close(np.concatenate(pieces), wanted)
    state = opened.state()
    rows = [opened.step(state, int(token)) for token in tokens]
    assert_close(np.stack(rows), wanted)
    state.save(folder / "state")
