"""What 8 and 4 bits cost: bits per byte of quantised models on held-out text, tarn's next to
llama.cpp's of the same models.

    python bench/quality.py --size quick|small|full [--only linear,gdn] [--threads N]
    python bench/quality.py --page        the tables of docs/quantisation.md from the results

trains a byte-level model of each kind on one text, unless the folder of models has it,
quantises it in every way of quality_sides.py and measures all of them on texts that it has
not seen. What is finished is kept, so that a run may be stopped. The results are
docs/benchmarks/quality/results.json, whatever machine they come from: the arithmetic of tarn's
runtime is the same on all.

Where the peers' Python has llama.cpp (scripts/bench_setup.sh), models in a form that it runs
are exported as GGUF files in float32, and its quantiser makes the others of them. Models:
models/quality, or TARN_QUALITY_MODELS.
"""

import argparse
import json
import pathlib
import subprocess

import llama_process
import quality_models as models
import quality_page
import quality_sides as sides
import quality_sums as sums

RESULTS = models.ROOT / "docs" / "benchmarks" / "quality" / "results.json"


class Measured:
    """The results of one model, kept in a file after each measurement."""

    def __init__(self, path, held_out):
        self.path, self.held_out = path, held_out
        self.found = json.loads(path.read_text()) if path.exists() else {}
        self._references = None

    def _keep(self):
        self.path.write_text(json.dumps(self.found, indent=1))

    def reference(self, model, threads):
        """The float32 model, with which the others are compared."""
        if "float32" not in self.found:
            facts = json.loads(sides.tarn("info", model, "--json"))
            self.found["parameters"] = facts["parameters"]["total"]
        self._of = lambda: sides.tarn_logits(model, self.held_out, threads)
        if "float32" not in self.found:
            self.found["float32"] = {
                text: sums.rounded(sums.bits_per_byte(logits, self.held_out[text]))
                for text, logits in self.references().items()
            }
            self._keep()

    def references(self):
        if self._references is None:
            self._references = self._of()
        return self._references

    def add(self, section, way, make):
        """Measures a way unless it is there. make() gives facts and {arithmetic: logits}."""
        ways = self.found.setdefault(section, {})
        if way in ways:
            return
        facts, runs = make()
        bits = 8 * facts["tensor_bytes"] / self.found["parameters"]
        facts["bits_per_weight"] = sums.rounded(bits, 3)
        for arithmetic, logits in runs.items():
            facts[arithmetic] = sums.compared(self.references(), logits, self.held_out)
        ways[way] = facts
        self._keep()
        told = ", ".join(f"{one} {facts[one]['worst']:+.5f}" for one in runs)
        print(f"  {section} {way}: {facts['bits_per_weight']:.2f} bits, {told}", flush=True)


def measure(kind, name, size, train, held_out, threads):
    model = models.trained(kind, name, size, train, threads)
    folder = models.FOLDER / name
    of = Measured(folder / f"{kind}.json", held_out)
    of.reference(model, threads)
    print(f"{kind}: {of.found['float32']}", flush=True)
    for way in sides.WAYS:
        of.add("tarn", way, lambda: sides.by_tarn(model, way, train, held_out, threads))
    if kind in models.FOR_LLAMA and not llama_process.missing():
        file = sides.exported(model, folder / f"{kind}.gguf")
        for way in sides.TYPES:
            of.add("llama.cpp", way, lambda: sides.by_llama(file, way, held_out, threads))
    for side, ways in (("tarn", sides.WAYS), ("llama.cpp", sides.TYPES)):
        if side in of.found:
            of.found[side] = {way: of.found[side][way] for way in ways if way in of.found[side]}
    return of.found


def commit():
    words = ["git", "-C", str(models.ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=models.SIZES, default="small")
    parser.add_argument("--only", default=",".join(models.KINDS), help="kinds, with commas")
    parser.add_argument("--out", default=str(RESULTS), help="file of the results")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as there are cores")
    parser.add_argument("--page", action="store_true", help="write the tables, measure nothing")
    options = parser.parse_args()
    out = pathlib.Path(options.out)
    results = json.loads(out.read_text()) if out.exists() else {"sizes": {}}
    if options.page:
        return quality_page.write(results)
    kinds = options.only.split(",")
    for kind in kinds:
        if kind not in models.KINDS:
            parser.error(f"--only: want some of {', '.join(models.KINDS)}, got {kind!r}")
    size = models.SIZES[options.size]
    train, held_out = models.texts(size)
    for kind in kinds:
        found = measure(kind, options.size, size, train, held_out, options.threads)
        of = results["sizes"].setdefault(options.size, {"models": {}})
        of |= {"commit": commit(), "window": sums.WINDOW, "held_out_bytes": size.text}
        of["training"] = {key: getattr(size, key) for key in ("seq_len", "batch")}
        if not llama_process.missing():
            of["llama.cpp"] = sides.llama_version()
        of["models"][kind] = {"steps": models.steps(kind, size)} | found
        out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
