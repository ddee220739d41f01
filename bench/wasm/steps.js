// A side of the measure `wasm`: opens a model in the WebAssembly runtime, then for each
// line N of stdin takes N steps of one sequence from its beginning and prints how long they took.
//
//     node steps.js RUNTIME MODEL WEIGHTS        WEIGHTS: a number of TARN_WEIGHTS_*
"use strict";
const fs = require("fs");
const path = require("path");
const readline = require("readline");

async function main() {
  const [runtime, model, weights] = process.argv.slice(2);
  const createTarn = require(path.join(runtime, "tarn_runtime.js"));
  const tarn = await createTarn({
    wasmBinary: fs.readFileSync(path.join(runtime, "tarn_runtime.wasm")),
  });
  const files = {};
  for (const name of fs.readdirSync(model)) files[name] = fs.readFileSync(path.join(model, name));
  const opened = tarn.openModel(files, { weights: Number(weights) });
  // The functions of tarn.h themselves: nothing of the wrapper is timed.
  const slot = tarn._malloc(8), logits = tarn._malloc(4 * opened.vocabSize);
  if (tarn._tarn_state_new(opened.at, slot, 0) !== 0) throw new Error("no state");
  const state = new DataView(tarn.HEAPU8.buffer).getInt32(slot, true);
  console.log(JSON.stringify({ parameters: opened.parameters }));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    tarn._tarn_state_reset(state, 0);
    const steps = Number(line), used = process.cpuUsage(), begin = process.hrtime.bigint();
    for (let i = 0; i < steps; ++i) {
      const token = (7919 * i) % 256;
      if (tarn._tarn_step(opened.at, state, token, logits, 0) !== 0) throw new Error("step");
    }
    const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
    const { user, system } = process.cpuUsage(used);
    console.log(JSON.stringify({ seconds, cpu_per_wall: (user + system) / 1e6 / seconds }));
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
