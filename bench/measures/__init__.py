"""Every measure by name: a function of a results.Context that returns a
results.Table. Modules are loaded on demand, since some need the peers."""

import dataclasses
import importlib
import os

import published_shapes


@dataclasses.dataclass(frozen=True)
class Measure:
    title: str
    module: str
    function: str = "measure"
    peers: bool = False  # needs .venv-peers
    arguments: tuple = ()  # of the function, after the context
    variables: tuple = ()  # of the environment, without which it cannot run

    def missing(self):
        return [one for one in self.variables if one not in os.environ]

    def load(self):
        if self.missing():
            raise SystemExit(f"bench: want {', '.join(self.missing())} set for {self.title}")
        function = getattr(importlib.import_module(self.module), self.function)
        return lambda ctx: function(ctx, *self.arguments)


def _peer(title, module, function="measure"):
    return Measure(title, f"measures.{module}", function, peers=True)


def _own(title, module, function="measure"):
    return Measure(title, f"measures.{module}", function)


PUBLISHED = "published_models"  # a table a model: one takes a quarter of an hour
RACE = "llama_cpp_race"  # the same
_RACED = (*published_shapes.NAMES, published_shapes.MIXTURE)

ALL = (
    {
        "forward": _peer("causal forward, fast-transformers", "causal_product", "forward"),
        "gradient": _peer("its gradient", "causal_product", "gradient"),
        "share": _own("share of sgemm by shape", "share"),
        "bfloat16": _own("bfloat16 against float32", "bfloat16"),
        "length": _own("N = 65,536 against N = 4,096", "length"),
        "crossover": _own("crossover with softmax attention", "crossover"),
        "threads": _own("one head, two threads against one", "threads"),
        "layers": _peer("encoder layer against its products", "layers"),
        "copy_task": _peer("training step of the copy task", "copy_task"),
        "curves": _peer("time and memory against N", "curves"),
        "python_layers": _peer("the builders' encoder, fast-transformers", "python_layers"),
        "recurrent_step": _peer("steps from Python", "recurrent_step"),
        "training_step": _own("training step of a language model", "training_step"),
        "precision": _own("training step in bfloat16", "precision"),
        "training_memory": _own("memory of a training step", "training_memory"),
        "decode": _own("150 M parameters: decode, prefill", "decode"),
        "generation": _peer("the paper's shapes, batch 1", "generation"),
        "batch": _peer("images per second, batch 1 to 256", "batch"),
        "softmax_cache": _own("softmax model with a cache", "context", "softmax"),
        "million": _own("token 1,000,000 against 1,000", "context", "million"),
        "core_taken": _own("a core taken by another process", "neighbours", "core_taken"),
        "idle": _own("processor time of an idle model", "neighbours", "idle"),
        "families": _own("decay and delta kernels", "families", "kernels"),
        "recurrent_forms": _own("operators against torch forms", "families", "forms"),
        "family_steps": _own("states a second at a server's batch", "family_models", "steps"),
        "family_models": _own("families at 150 M parameters", "family_models", "models"),
        "hybrid_models": _own("transformers' own models", "hybrid_models"),
        "recurrent_classes": _own("each recurrent class of transformers", "recurrent_classes"),
        "speculation": _own("guesses read ahead of the draws", "speculation"),
        "wasm": Measure(
            "WebAssembly under node, against the native runtime",
            "measures.wasm",
            variables=("TARN_WASM",),
        ),
        "llama_server": Measure(
            "a server beside llama-server",
            "measures.llama_server",
            peers=True,
            variables=("TARN_LLAMA_SERVER", "TARN_BENCH_SERVED"),
        ),
        "fla_forms": _own("flash-linear-attention's forms against torch", "fla_forms"),
        "kernels": _own("every kernel at usual shapes", "kernels"),
    }
    | {
        f"{PUBLISHED}:{name}": Measure(
            f"published shape, transformers, {name}", f"measures.{PUBLISHED}", arguments=(name,)
        )
        for name in published_shapes.NAMES
    }
    | {
        f"{RACE}:{name}": Measure(
            f"llama.cpp, {name}", f"measures.{RACE}", peers=True, arguments=(name,)
        )
        for name in _RACED
    }
)


def named(name):
    """The measures of a word of --only: one, or all of a group."""
    return [one for one in ALL if one == name or one.startswith(f"{name}:")]
