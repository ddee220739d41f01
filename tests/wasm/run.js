// Runs a model in the WebAssembly runtime under node:
//
//     node run.js FOLDER_OF_THE_RUNTIME MODEL JOB
//
// JOB is JSON: {prompt, maxTokens, sampler, options}. Prints JSON: what was written and the session's
// file, in hex, and what forks and rollbacks of the session gave.
"use strict";
const fs = require("fs");
const path = require("path");

const [folder, model, job] = process.argv.slice(2);
const createTarn = require(path.resolve(folder, "tarn_runtime.js"));

function filesOf(model) {
  if (fs.statSync(model).isFile()) return { [path.basename(model)]: fs.readFileSync(model) };
  const files = {};
  for (const name of fs.readdirSync(model)) files[name] = fs.readFileSync(path.join(model, name));
  return files;
}

function write(session, prompt, options) {
  const bytes = [];
  session.begin(prompt, options);
  for (;;) {
    const next = session.next();
    bytes.push(...next.bytes);
    if (next.token < 0) return Buffer.from(bytes).toString("hex");
  }
}

async function main() {
  const wasmBinary = fs.readFileSync(path.join(folder, "tarn_runtime.wasm"));
  const tarn = await createTarn({ wasmBinary });
  const { prompt, maxTokens, sampler, options: of } = JSON.parse(job);
  const opened = tarn.openModel(filesOf(model), of);
  const tokens = opened.encode(prompt);
  const options = { maxTokens, sampler };
  const session = opened.session();
  session.append(tokens);
  const logits = Array.from(session.logits);
  const bytes = session.stateBytes;
  session.mark("prompt");
  const fork = session.fork();
  const result = { version: tarn.version(), tokens: Array.from(tokens), logits };
  result.text = write(session, [], options);
  result.fork = write(fork, [], options);
  session.rollbackTo("prompt");
  result.position = session.position;
  result.again = write(session, [], options);
  result.read = Buffer.from(opened.decode(session.tokens)).toString("hex");
  const direct = opened.session();
  write(direct, tokens, options);
  result.session = Buffer.from(direct.serialize()).toString("hex");
  result.restored = opened.restore(direct.serialize()).position === direct.position;
  result.stateBytes = [bytes, session.stateBytes, opened.stateBytes];
  result.errors = [
    () => session.rollback(session.position + 1),
    () => session.rollbackTo("nowhere"),
    () => session.append([opened.vocabSize]),
    () => tarn.openModel({ "config.json": new TextEncoder().encode("{") }),
    () => session.begin([], { sampler: { nothing: 1 } }),
  ].map((call) => {
    try {
      call();
      return null;
    } catch (error) {
      return [error instanceof tarn.TarnError, error.code, error.message];
    }
  });
  fork.close();
  session.close();
  opened.close();
  process.stdout.write(JSON.stringify(result));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
