"use strict";
// The page of the playground. All of the engine is in this tab: createTarn() of
// src/wasm, and a model. Text of the model is inserted as text, never as markup.
const at = (id) => document.getElementById(id);
const make = (name, options = {}, ...children) => {
  const node = Object.assign(document.createElement(name), options);
  node.append(...children);
  return node;
};

let tarn = null, model = null, current = null, running = false, count = 0;
const sessions = [];

function say(text, warn) {
  at("figures").textContent = text;
  at("figures").classList.toggle("warn", Boolean(warn));
}
function guarded(work) {
  try {
    return work();
  } catch (error) {
    say(error.message, true);
  }
}

// A session of the page: the runtime's, the positions at which the user's text and the
// model's take turns, and points of its chart.
function addSession(session, from) {
  const one = {
    session,
    name: "session " + ++count,
    turns: from ? from.turns.map((turn) => ({ ...turn })) : [],
    points: from ? from.points.slice() : [[0, session.stateBytes]],
    marked: from ? from.marked : null,
  };
  sessions.push(one);
  choose(one);
  return one;
}
const newSession = () => addSession(model.session(), null);

function choose(one) {
  current = one;
  showText();
  showTree();
  drawChart();
}

// The text of the session from its tokens, so that it is what the state has read.
function showText() {
  const tokens = current.session.tokens;
  const parts = current.turns.map((turn) =>
    make("span", { className: turn.mine ? "mine" : "answer" },
      new TextDecoder().decode(model.decode(tokens.slice(turn.begin, turn.end)))));
  at("log").replaceChildren(...parts);
  at("log").scrollTop = at("log").scrollHeight;
}

// What a call of the engine took, and its result.
function timed(label, one, work) {
  const begin = performance.now();
  const result = work();
  const time = (1000 * (performance.now() - begin)).toFixed(0);
  say(`${label}: ${time} \u00b5s, ${one.session.stateBytes.toLocaleString("en")} bytes of state`);
  return result;
}

const actions = {
  Fork: (one) => addSession(timed("Fork", one, () => one.session.fork()), one),
  Mark: (one) => {
    timed("Mark", one, () => one.session.mark("here"));
    one.marked = one.session.position;
    showTree();
  },
  Back: (one) => {
    timed("Back", one, () => one.session.rollbackTo("here"));
    const position = one.session.position;
    one.turns = one.turns.filter((turn) => turn.begin < position);
    for (const turn of one.turns) turn.end = Math.min(turn.end, position);
    one.points = one.points.filter((point) => point[0] <= position);
    choose(one);
  },
  Delete: (one) => {
    sessions.splice(sessions.indexOf(one), 1);
    one.session.close();
    if (sessions.length === 0) newSession();
    else choose(current === one ? sessions[0] : current);
    say("");
  },
};

function showTree() {
  const held = document.activeElement && document.activeElement.dataset.place;
  at("tree").replaceChildren(...sessions.map((one, i) => {
    const name = make("button", { className: "name", textContent: one.name, disabled: running });
    name.addEventListener("click", () => choose(one));
    const facts = one.session.position.toLocaleString("en") + " tokens" +
      (one.marked === null ? "" : ", mark at " + one.marked.toLocaleString("en"));
    const buttons = Object.entries(actions).map(([label, act]) => {
      const button = make("button", { textContent: label });
      button.setAttribute("aria-label", `${label} ${one.name}`);
      button.dataset.place = `${i} ${label}`;
      button.disabled = running || (label === "Back" && one.marked === null);
      button.addEventListener("click", () => guarded(() => act(one)));
      return button;
    });
    const row = make("li", {}, name, make("span", { className: "soft" }, " " + facts),
      make("div", { className: "row" }, ...buttons));
    row.setAttribute("aria-current", one === current);
    return row;
  }));
  // The list is new: who had a button of it by the keyboard still has it.
  const again = held && at("tree").querySelector(`[data-place="${held}"]`);
  if (again) again.focus();
}

function drawChart() {
  const list = current.points;
  const [tokens, state] = at("chart").querySelectorAll("polyline");
  const most = Math.max(1, ...list.map((one) => one[0]));
  const bytes = Math.max(1, ...list.map((one) => one[1]));
  const line = (index, top) => (list.length === 1 ? [list[0], list[0]] : list).map((one) =>
    (1 + 98 * one[0] / most).toFixed(2) + "," + (48 - 44 * one[index] / top).toFixed(2)).join(" ");
  tokens.setAttribute("points", line(0, most));
  state.setAttribute("points", line(1, bytes * 2));
  const last = list[list.length - 1];
  at("legend").textContent =
    `${last[0].toLocaleString("en")} tokens (dashed), ${last[1].toLocaleString("en")} bytes of state (line)`;
}

function point(one) {
  const last = one.points[one.points.length - 1];
  if (last[0] === one.session.position) return;
  one.points.push([one.session.position, one.session.stateBytes]);
  // A long line is as good with every other point.
  if (one.points.length > 1000) one.points = one.points.filter((_, i) => i % 2 === 0);
}

function setRunning(now) {
  running = now;
  at("send").disabled = now;
  at("stop").disabled = !now;
  at("new").disabled = now;
  at("log").setAttribute("aria-busy", now);
  showTree();
}

const frame = () => new Promise((done) => setTimeout(done, 0));
const sampler = () => ({
  temperature: Number(at("temperature").value),
  top_k: Number(at("top_k").value),
  seed: Number(at("seed").value),
});

async function write() {
  if (running || !model) return;
  const one = current, session = one.session;
  const text = at("text").value;
  // As `tarn generate` begins without a prompt: after the end of a line.
  const prompt = model.encode(text === "" && session.position === 0 ? "\n" : text);
  const begin = session.position;
  session.begin(prompt, { maxTokens: Number(at("most").value), sampler: sampler() });
  at("text").value = "";
  if (prompt.length) {
    one.turns.push({ mine: true, begin, end: begin + prompt.length });
    at("log").append(make("span", { className: "mine" }, text));
  }
  const turn = { mine: false, begin: begin + prompt.length, end: begin + prompt.length };
  one.turns.push(turn);
  const answer = at("log").appendChild(make("span", { className: "answer" }));
  const decoder = new TextDecoder();
  setRunning(true);
  let tokens = 0, spent = 0, ended = false;
  try {
    while (running && !ended) {
      // A slice that keeps the page alive, then a frame.
      const start = performance.now();
      let now = start, piece = "";
      do {
        const next = session.next();
        piece += decoder.decode(next.bytes, { stream: true });
        ended = next.token < 0;
        if (!ended) ++tokens;
        now = performance.now();
      } while (!ended && now - start < 12);
      spent += now - start;
      answer.append(piece);
      point(one);
      drawChart();
      at("log").scrollTop = at("log").scrollHeight;
      const speed = spent > 0 ? Math.round(1000 * tokens / spent) : 0;
      say(`${tokens.toLocaleString("en")} tokens, ${speed.toLocaleString("en")} tokens/s`);
      await frame();
    }
    // Stopped before its end: the token that was drawn last is read too.
    if (!ended) session.append([]);
    answer.append(decoder.decode());
    say(at("figures").textContent + (ended ? "; done" : "; stopped"));
  } catch (error) {
    say(error.message, true);
  }
  turn.end = session.position;
  point(one);
  setRunning(false);
  drawChart();
}

function openModel(files) {
  const opened = tarn.openModel(files);
  while (sessions.length) sessions.pop().session.close();
  if (model) model.close();
  model = opened;
  const grows = model.stateBytesPerToken;
  at("facts").textContent = `${model.parameters.toLocaleString("en")} parameters, ` +
    `${model.stateBytes.toLocaleString("en")} bytes of state, ` +
    (grows ? `${grows.toLocaleString("en")} more with each token` : "the same at any length");
  newSession();
  setRunning(false);
}

async function openChosen() {
  const files = {};
  for (const file of at("files").files) files[file.name] = new Uint8Array(await file.arrayBuffer());
  if (Object.keys(files).length) guarded(() => openModel(files));
}

const bytesOf = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
async function start() {
  const engine = at("engine"), stored = at("model");
  if (!engine || !stored || typeof createTarn === "undefined") {
    at("facts").textContent = "This is the page without its engine: `make wasm` builds both.";
    return;
  }
  tarn = await createTarn({ wasmBinary: bytesOf(engine.textContent) });
  const files = JSON.parse(stored.textContent);
  for (const name of Object.keys(files)) files[name] = bytesOf(files[name]);
  openModel(files);
}

at("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  write().catch((error) => say(error.message, true));
});
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("entry").requestSubmit();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running = false;
});
at("stop").addEventListener("click", () => { running = false; });
at("new").addEventListener("click", () => guarded(newSession));
at("files").addEventListener("change", () => openChosen().catch((error) => say(error.message, true)));
start().catch((error) => {
  at("facts").textContent = "The engine does not start here: " + error.message;
  at("facts").classList.add("warn");
});
