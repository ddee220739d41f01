// tarn for JavaScript, over the functions of tarn.h: what createTarn() resolves to has
// openModel() and TarnError. Models and sessions hold memory of the module until
// close() is called. One thread; every call returns when it is done.
//
//   const tarn = await createTarn({wasmBinary});
//   const model = tarn.openModel({"config.json": bytes, ...});
//   const session = model.session();
//   session.begin(model.encode("Once"), {maxTokens: 100, sampler: {temperature: 0}});
//   for (let next = session.next(); next.token >= 0; next = session.next()) show(next.text);

class TarnError extends Error {
  constructor(message, code) {
    super(message);
    this.name = "TarnError";
    this.code = code; // tarn_status
  }
}

// Adds the interface to a module of emscripten.
function withInterface(engine) {
  // Calls to the interface of C; `slot` takes a result of up to 8 bytes or the error.
  const native = {
    layouts: null,
    slot: 0,
    opened: 0,
    prepare() {
      if (native.layouts) return;
      native.layouts = {};
      for (const line of engine.UTF8ToString(engine._tarn_wasm_layouts()).split("\n")) {
        const [name, ...fields] = line.split(" ");
        const layout = {};
        for (const field of fields) {
          const [, key, offset, type] = /^(\w+)=(\d+)([ifp]\d+)$/.exec(field);
          layout[key] = { offset: Number(offset), type };
        }
        native.layouts[name] = layout;
      }
      native.slot = engine._malloc(16) >>> 0;
    },
    // Memory grows, and its views change with it: they are asked for each time.
    view: () => new DataView(engine.HEAPU8.buffer),
    get(type, at) {
      const view = native.view();
      if (type === "i32") return view.getInt32(at, true);
      if (type === "p32") return view.getUint32(at, true);
      if (type === "i64") return view.getBigInt64(at, true);
      return view.getFloat64(at, true);
    },
    set(type, at, value) {
      const view = native.view();
      if (type === "i32") view.setInt32(at, value, true);
      else if (type === "p32") view.setUint32(at, value, true);
      else if (type === "i64") view.setBigInt64(at, BigInt(value), true);
      else view.setFloat64(at, value, true);
    },
    // Throws what a function reported; its last argument is filled in here.
    check(call, ...words) {
      const error = native.slot + 8;
      native.set("i32", error, 0);
      const code = call(...words, error);
      if (code === 0) return;
      const at = native.get("p32", error);
      const message = engine.UTF8ToString(engine._tarn_error_message(at));
      engine._tarn_error_free(at);
      throw new TarnError(message, code);
    },
    // What a function stores through the argument before its last: a handle, a number.
    made(call, ...words) {
      native.check(call, ...words, native.slot);
      return native.get("p32", native.slot);
    },
    counted(call, ...words) {
      native.check(call, ...words, native.slot);
      return Number(native.get("i64", native.slot));
    },
    // Runs `use` with memory of so many bytes.
    with(bytes, use) {
      const at = engine._malloc(Math.max(bytes, 8)) >>> 0;
      if (at === 0) throw new TarnError("memory: want " + bytes + " bytes, got none left", 9);
      try {
        return use(at);
      } finally {
        engine._free(at);
      }
    },
    withText: (text, use) => native.with(engine.lengthBytesUTF8(text) + 1, (at) => {
      const bytes = engine.stringToUTF8(text, at, engine.lengthBytesUTF8(text) + 1);
      return use(at, bytes);
    }),
    withTokens: (tokens, use) => native.with(4 * tokens.length, (at) => {
      new Int32Array(engine.HEAPU8.buffer, at, tokens.length).set(tokens);
      return use(at, BigInt(tokens.length));
    }),
    tokens: (count, call) => native.with(4 * count, (at) => {
      const written = native.counted(call, at, BigInt(count));
      return new Int32Array(engine.HEAPU8.buffer, at, written).slice();
    }),
    // A struct of the interface with these fields, others zero unless `fill` sets them.
    withStruct(name, values, use, fill) {
      const layout = native.layouts[name];
      return native.with(layout.size.offset, (at) => {
        engine.HEAPU8.fill(0, at, at + layout.size.offset);
        native.set("i32", at, layout.size.offset);
        if (fill) fill(at);
        for (const [key, value] of Object.entries(values)) {
          if (!layout[key]) throw new TarnError(name + ": no field " + key, 1);
          native.set(layout[key].type, at + layout[key].offset, value);
        }
        return use(at);
      });
    },
  };

  class TarnSession {
    constructor(model, at) {
      this.model = model;
      this.at = at;
    }
    close() {
      engine._tarn_session_free(this.at);
      this.at = 0;
    }
    append(tokens) {
      native.withTokens(tokens, (at, count) =>
        native.check(engine._tarn_session_append, this.at, at, count));
    }
    // Begins a text after `tokens`. sampler: fields of tarn_sampler_options that differ
    // from the model's own, such as {temperature: 0}.
    begin(tokens, { maxTokens = 256, sampler = {} } = {}) {
      const fill = (at) => engine._tarn_model_sampler(this.model.at, at);
      native.withStruct("tarn_sampler_options", sampler, (sampling) =>
        native.withStruct("tarn_generate_options", { max_tokens: maxTokens, sampler: sampling }, (options) =>
          native.withTokens(tokens, (at, count) =>
            native.check(engine._tarn_session_begin, this.at, at, count, options))), fill);
    }
    // The next token of the text, -1 at its end, with the bytes that it settles.
    next() {
      return native.withStruct("tarn_session_token", { token: -1 }, (at) => {
        native.check(engine._tarn_session_next, this.at, at);
        const layout = native.layouts.tarn_session_token;
        const field = (key) => native.get(layout[key].type, at + layout[key].offset);
        const text = field("text");
        const bytes = engine.HEAPU8.slice(text, text + Number(field("bytes")));
        return { token: field("token"), end: field("end"), bytes };
      });
    }
    fork() {
      return new TarnSession(this.model, native.made(engine._tarn_session_fork, this.at, 0));
    }
    mark(name) {
      native.withText(name, (at) => native.check(engine._tarn_session_mark, this.at, at));
    }
    rollback(position) {
      return native.counted(engine._tarn_session_rollback, this.at, BigInt(position));
    }
    rollbackTo(name) {
      return native.withText(name, (at) => native.counted(engine._tarn_session_rollback_to, this.at, at));
    }
    get position() {
      return Number(engine._tarn_session_position(this.at));
    }
    get stateBytes() {
      return Number(engine._tarn_session_state_bytes(this.at));
    }
    get tokens() {
      return native.tokens(this.position, (...words) => engine._tarn_session_tokens(this.at, ...words));
    }
    // The session as the bytes of a file that model.restore(), `tarn generate --load` and
    // tarn_session_load() read.
    serialize() {
      const size = native.counted(engine._tarn_session_serialize, this.at, 0, 0n);
      return native.with(size, (at) => {
        native.counted(engine._tarn_session_serialize, this.at, at, BigInt(size));
        return engine.HEAPU8.slice(at, at + size);
      });
    }
    // Logits after the last consumed token, or none.
    get logits() {
      const at = engine._tarn_session_logits(this.at, native.slot) >>> 0;
      const count = Number(native.get("i64", native.slot));
      return at ? new Float32Array(engine.HEAPU8.buffer, at, count).slice() : new Float32Array(0);
    }
  }

  class TarnModel {
    constructor(at) {
      this.at = at;
    }
    close() {
      engine._tarn_model_close(this.at);
      this.at = 0;
    }
    get parameters() {
      return Number(engine._tarn_model_parameters(this.at));
    }
    get vocabSize() {
      return Number(engine._tarn_model_vocab_size(this.at));
    }
    get stateBytes() {
      return Number(engine._tarn_model_state_bytes(this.at));
    }
    get stateBytesPerToken() {
      return Number(engine._tarn_model_state_bytes_per_token(this.at));
    }
    encode(text) {
      return native.withText(text, (at, bytes) => {
        const count = native.counted(engine._tarn_encode, this.at, at, BigInt(bytes), 0, 0n);
        return native.tokens(count, (...words) => engine._tarn_encode(this.at, at, BigInt(bytes), ...words));
      });
    }
    // Bytes, as a text may end within a character.
    decode(tokens) {
      return native.withTokens(tokens, (at, count) => {
        const bytes = native.counted(engine._tarn_decode, this.at, at, count, 0, 0n);
        return native.with(bytes, (out) => {
          native.check(engine._tarn_decode, this.at, at, count, out, BigInt(bytes), native.slot);
          return engine.HEAPU8.slice(out, out + bytes);
        });
      });
    }
    restore(bytes) {
      return native.with(bytes.length, (at) => {
        engine.HEAPU8.set(bytes, at);
        return new TarnSession(this, native.made(
          engine._tarn_session_deserialize, this.at, at, BigInt(bytes.length), 0));
      });
    }
    session() {
      return new TarnSession(this, native.made(engine._tarn_session_new, this.at, 0));
    }
  }

  engine.version = () => engine.UTF8ToString(engine._tarn_version());
  // A model from its files, names to Uint8Array: those of a directory, or one GGUF file.
  // options: fields of tarn_model_options.
  engine.openModel = (files, options = {}) => {
    native.prepare();
    const folder = "/tarn-" + native.opened++;
    const names = Object.keys(files);
    engine.FS.mkdir(folder);
    try {
      for (const name of names) engine.FS.writeFile(folder + "/" + name, files[name]);
      const gguf = names.length === 1 && names[0].endsWith(".gguf");
      const path = gguf ? folder + "/" + names[0] : folder;
      const values = Object.assign({ weights: -1, threads: 1 }, options);
      return native.withStruct("tarn_model_options", values, (at) =>
        native.withText(path, (text) => new TarnModel(native.made(engine._tarn_model_open, text, at))));
    } finally {
      // Weights are packed into memory of the model's own.
      for (const name of names) engine.FS.unlink(folder + "/" + name);
      engine.FS.rmdir(folder);
    }
  };
  engine.TarnError = TarnError;
  return engine;
}

const createEngine = createTarn;
createTarn = async (options) => withInterface(await createEngine(options));
if (typeof module === "object" && typeof exports === "object") module.exports = createTarn;
