"""Every way in which tarn runs a published model, and how far each is from the classes that
define it: logits at once, in pieces, by steps and from a state file, after import, as a
module, the gradients of all weights, and logits of what is exported. Imports torch and
transformers: for test files that skip first."""

import shutil
import subprocess

import numpy as np
import programs
import published
import safetensors.torch
import torch
import transformers
from published_loss import loss_of, save_gradients

import tarn
from tarn import runtime

TOKENS = np.random.default_rng(1).integers(0, published.VOCAB, 200)
# The most that a float32 way may differ: the root mean square and any logit, both in parts
# of the logits' root mean square; the divergence of any token in nats; all gradients as
# one vector, in parts of its length, and those of each tensor, some of which are sums of
# large terms that nearly cancel.
BOUNDS = {"rms": 1e-5, "max": 2e-4, "KL": 1e-9, "gradients": 5e-5, "a gradient": 5e-4}
LEAST_ENTRY = 1e-3


def tarn_program(*arguments):
    done = subprocess.run(
        [str(programs.BUILD / "tarn"), *map(str, arguments)], capture_output=True, text=True
    )
    return done.returncode, done.stderr


def difference(given, wanted):
    """rms, max and KL of logits [T, vocabulary]."""
    given, wanted = np.asarray(given, np.float64), np.asarray(wanted, np.float64)
    size = np.sqrt(np.mean(wanted**2))
    error = np.abs(given - wanted)

    def logs(rows):
        rows = rows - rows.max(-1, keepdims=True)
        return rows - np.log(np.exp(rows).sum(-1, keepdims=True))

    ours, theirs = logs(given), logs(wanted)
    divergence = (np.exp(theirs) * (theirs - ours)).sum(-1)
    return {
        "rms": float(np.sqrt(np.mean(error**2)) / size),
        "max": float(error.max() / size),
        "KL": float(np.abs(divergence).max()),
    }


def runtime_logits(folder):
    """Of a directory, by the ways of the runtime."""
    opened = runtime.Model(folder)
    ways = {"at once": opened.score(opened.state(), TOKENS)}
    state = opened.state()
    pieces = [opened.score(state, piece) for piece in np.split(TOKENS, [1, 7, 100])]
    ways["pieces"] = np.concatenate(pieces)
    state = opened.state()
    rows = [opened.step(state, int(token)) for token in TOKENS[:110]]
    file = folder / "state"
    state.save(file)
    left = opened.load_state(file)
    file.unlink()
    ways["steps, state file"] = np.concatenate(
        [np.stack(rows), np.stack([opened.step(left, int(token)) for token in TOKENS[110:]])]
    )
    return ways


def tensors(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


def gradient_difference(model, folder, gradients):
    """The worst of all tensors of a file. What importing does to numbers is found with
    numbers that tell where they come from: each of tarn's is one of the file's times a
    factor plus a term, so that a gradient goes back the same way.
    model: of tarn, with gradients. folder: of the weights, gradients: of the definer's."""
    stored, wanted = tensors(folder), tensors(gradients)
    count = sum(tensor.numel() for tensor in stored.values())

    def imported(number):
        """tarn's tensors from a file of other numbers."""
        other = gradients.with_name("numbers")
        shutil.rmtree(other, ignore_errors=True)
        other.mkdir()
        shutil.copy(folder / "config.json", other)
        first, filled = 0, {}
        for name, tensor in stored.items():
            end = first + tensor.numel()
            filled[name] = number(first, end).reshape(tensor.shape)
            first = end
        safetensors.torch.save_file(filled, other / "model.safetensors", {"format": "pt"})
        return tarn.load_model(other).state_dict()

    terms = imported(lambda first, end: torch.zeros(end - first))
    factors = imported(lambda first, end: torch.ones(end - first))
    places = imported(lambda first, end: torch.arange(first, end, dtype=torch.float32))
    ours = torch.zeros(count, dtype=torch.float64)
    for name, weight in model.named_parameters():
        term = terms[name].double()
        factor = (factors[name].double() - term).flatten()
        used = factor != 0
        if weight.grad is None:
            assert not used.any(), name
            continue
        place = ((places[name].double() - term).flatten()[used] / factor[used]).round().long()
        ours.index_add_(0, place, weight.grad.double().flatten()[used] * factor[used])
    errors, norms, first = {}, {}, 0
    for name, tensor in wanted.items():
        end = first + tensor.numel()
        given = ours[first:end].reshape(tensor.shape)
        first = end
        if not torch.equal(tensor, stored[name]):  # else it is no parameter
            errors[name] = float((given - tensor.double()).norm())
            norms[name] = float(tensor.double().norm())

    def length(parts):
        return sum(part**2 for part in parts) ** 0.5

    # A gradient that is 0 but for rounding is measured by the size of the others' entries.
    entry = length(norms.values()) / sum(wanted[name].numel() for name in norms) ** 0.5
    worst = max(
        (error / max(norms[name], LEAST_ENTRY * entry * wanted[name].numel() ** 0.5), name)
        for name, error in errors.items()
    )
    return {
        "gradients": length(errors.values()) / length(norms.values()),
        "a gradient": worst[0],
        "tensor": worst[1],
    }


def definer_logits(model, gradients=None):
    """[T, vocabulary]; gradients: the folder that gets those of all weights."""
    model.zero_grad()
    logits = model(torch.tensor(TOKENS)[None], use_cache=False).logits
    if gradients is not None:
        loss_of(logits).backward()
        save_gradients(model, gradients)
    return logits[0].detach().numpy()


def module_differences(folder, wanted, gradients):
    model = tarn.load_model(folder)
    logits = model(torch.tensor(TOKENS)[None])
    found = difference(logits[0].detach(), wanted)
    loss_of(logits).backward()
    return found | gradient_difference(model, folder, gradients)


def export(kind, folder, out):
    """False for a type that cannot be written."""
    code, errors = tarn_program("export", folder, "--to", "hf", "--type", kind, "--out", out)
    if code != 0 and "error: --type: want " in errors:
        return False
    assert code == 0, errors
    return True


def differences_of(kind, model, scratch):
    """A way -> what it differs by, of a model of transformers."""
    theirs, gradients = scratch / "theirs", scratch / "gradients"
    model.save_pretrained(theirs)
    wanted = definer_logits(model, gradients)
    found = own_differences(theirs, wanted, gradients, scratch / "ours")
    back = scratch / "back"
    if export(kind, scratch / "ours", back):
        opened = transformers.AutoModelForCausalLM.from_pretrained(back, dtype=torch.float32)
        found["export"] = difference(definer_logits(opened.eval()), wanted)
    return found


def own_differences(theirs, wanted, gradients, ours):
    """The same of the ways that are tarn's. ours: the folder for the imported model."""
    found = {}
    ways = runtime_logits(theirs)
    for way, logits in ways.items():
        found[way] = difference(logits, wanted)
    code, errors = tarn_program("import", theirs, "--out", ours)
    assert code == 0, errors
    for way, logits in runtime_logits(ours).items():
        # Bit for bit what the published directory gives.
        assert np.array_equal(logits.view(np.uint32), ways[way].view(np.uint32)), way
    found["module"] = module_differences(theirs, wanted, gradients)
    return found
