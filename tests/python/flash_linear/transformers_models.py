"""Tiny models of transformers' own classes, with drawn weights: their logits, their
gradients and what they generate, with tarn's kernels or without. A program, since a
process can have them in one way alone."""

import sys

import torch
from transformers_table import MODELS, VOCABULARY, model

TOKENS = 70
PROMPT = 12
PADS = 5  # tokens on the left of the second row's prompt


def _drawn(made):
    """Weights large enough that logits and gates differ from token to token."""
    draw = torch.Generator().manual_seed(5)
    for parameter in made.parameters():
        spread = 0.1 if parameter.dim() == 1 else 0.7 / parameter.shape[-1] ** 0.5
        noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float32)
        parameter.data += spread * noise
    return made


def _gradients(made, logits, kept):
    made.zero_grad()
    logits[kept].square().mean().backward()
    found = {name: one.grad for name, one in made.named_parameters() if one.grad is not None}
    return {name: one.clone() for name, one in found.items()}


def _written(made, tokens, mask, **options):
    """What is generated: tokens, and the logits of each step or the scores of the beams.
    The class's refusal, where it refuses."""
    try:
        with torch.no_grad():
            found = made.generate(
                tokens,
                attention_mask=mask,
                do_sample=False,
                return_dict_in_generate=True,
                output_logits=True,
                **options,
            )
    except (AttributeError, RuntimeError, TypeError, ValueError) as refusal:
        return {"refusal": type(refusal).__name__}
    scores = getattr(found, "sequences_scores", None)
    values = torch.stack(found.logits) if scores is None else scores
    return {"tokens": found.sequences, "values": values}


def _kernels(made, tokens):
    """Names of tarn's operators that a forward and a step of generation call."""
    with torch.no_grad(), torch.autograd.profiler.profile() as seen:
        made(input_ids=tokens, use_cache=False)
        made.generate(tokens[:, :PROMPT], max_new_tokens=2, min_new_tokens=2, do_sample=False)
    names = {event.name for event in seen.function_events}
    return {name for name in names if name.startswith("tarn::")} - {"tarn::affine"}


def told(name):
    torch.manual_seed(3)
    made = _drawn(model(name)).eval()
    draw = torch.Generator().manual_seed(7)
    tokens = torch.randint(3, VOCABULARY - 2, (2, TOKENS), generator=draw)
    every = torch.ones_like(tokens, dtype=torch.bool)
    logits = made(input_ids=tokens, use_cache=False).logits
    found = {"logits": logits.detach(), "gradients": _gradients(made, logits, every)}
    # The second row has pads on its left.
    mask = every.clone()
    mask[1, :PADS] = False
    padded = tokens.masked_fill(~mask, 0)
    logits = made(input_ids=padded, attention_mask=mask.long(), use_cache=False).logits
    found["padded logits"] = logits.detach()[mask]
    found["padded gradients"] = _gradients(made, logits, mask)
    prompts, masks = padded[:, :PROMPT], mask[:, :PROMPT].long()
    long = {"max_new_tokens": 12, "min_new_tokens": 12}
    short = {"max_new_tokens": 5, "min_new_tokens": 5, "num_beams": 3}
    found["generated"] = _written(made, tokens[:, :PROMPT], None, **long)
    found["padded, generated"] = _written(made, prompts, masks, **long)
    found["beams"] = _written(made, prompts, masks, **short)
    found["kernels"] = _kernels(made, tokens)
    return found


def main(way, path):
    if way == "tarn":
        import tarn

        tarn.accelerate_transformers()
    torch.set_num_threads(1)
    import transformers

    transformers.logging.set_verbosity_error()
    torch.save({name: told(name) for name in MODELS}, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
