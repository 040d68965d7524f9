// The timeline of a run: one row a step, drawn on a canvas, only what is in sight. A run with more steps
// than one answer holds shows its nodes; opening one loads its steps, a page at a time.
"use strict";
document.addEventListener("DOMContentLoaded", async () => {
  const place = document.getElementById("timeline");
  if (!place) return;
  const ROW = 22, HEAD = 26, BAR = 12;
  const waits = new Map(Object.entries(JSON.parse(place.dataset.critical))); // of the steps on the critical path: kind, from, ms
  const run = document.getElementById("run");
  let took = run.dataset.took === undefined ? null : Number(run.dataset.took);
  const canvas = document.createElement("canvas"), paint = canvas.getContext("2d");
  place.append(canvas);
  const state = { rows: [], top: 0, from: 0, to: 1, whole: true, chosen: -1, hover: -1, needle: "" };
  const byNumber = new Intl.Collator("en", { numeric: true });
  const steps = new Map(), nodes = new Map(), opened = new Set(), containers = new Set();
  let colours = {}, names = 190, right = 118, wide = 0, high = 0, pending = false, folded = false;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const learn = () => { for (const name of ["text", "dim", "line", "soft", "page", "queue", "execution", "bad", "idle", "path", "deadline", "accent", "waiting", "live", "model", "backoff", "coordinator", "cache"]) colours[name] = css(`--${name}`); };
  const now = () => hocket.knownMs() - Date.parse(run.dataset.accepted);
  const label = (ms) => ms === 0 ? "0" : hocket.duration(ms);
  const dollars = (usd) => `$${usd >= 1 ? usd.toFixed(2) : usd >= 0.001 ? usd.toFixed(4).replace(/00$/, "") : usd < 1e-8 ? "0.00000001 or less" : usd.toFixed(8).replace(/0+$/, "")}`;

  async function load(node, after) {
    const address = new URL(place.dataset.src, location.href);
    if (node) address.searchParams.set("node", node);
    if (after) address.searchParams.set("after", after);
    const answer = await hocket.ask(address).catch(() => null);
    if (!answer?.ok) { hocket.say("The timeline cannot be loaded."); return null; }
    return answer.json();
  }
  function take(data) {
    const c = data.columns;
    for (let i = 0; i < c.key.length; i++) {
      steps.set(c.key[i], { key: c.key[i], node: c.node[i], type: c.type[i], role: c.role[i], parent: c.parent[i], state: c.state[i], attempt: c.attempt[i], ready: c.ready[i], started: c.started[i] ?? c.dispatched[i], finished: c.finished[i], deadline: c.deadline[i], slack: c.slack[i], cost: c.cost[i], past: [], calls: [] });
    }
    for (const [key, from, to] of data.calls) steps.get(key)?.calls.push([from, to]);
    for (const [key, attempt, outcome, from, to] of data.attempts) steps.get(key)?.past.push({ attempt, outcome, from, to });
  }
  function arrange() {
    const rows = [];
    containers.clear();
    for (const step of steps.values()) if (step.parent) containers.add(step.parent);
    if (folded) {
      for (const node of nodes.values()) {
        rows.push({ node });
        if (!opened.has(node.node)) continue;
        const own = [...steps.values()].filter((step) => step.node === node.node && step.key !== node.node);
        for (const step of own.sort((a, b) => a.ready - b.ready || (node.next ? 0 : byNumber.compare(a.key, b.key)))) rows.push({ step, depth: 1 });
        if (node.next) rows.push({ more: node });
      }
    } else {
      const below = new Map();
      for (const step of steps.values()) {
        const at = steps.has(step.parent) ? step.parent : "";
        (below.get(at) ?? below.set(at, []).get(at)).push(step);
      }
      const walk = (parent, depth) => {
        const here = (below.get(parent) ?? []).sort((a, b) => a.ready - b.ready || byNumber.compare(a.key, b.key));
        for (const step of here) { rows.push({ step, depth }); walk(step.key, depth + 1); }
      };
      walk("", 0);
    }
    state.rows = state.needle ? rows.filter((row) => (row.step?.key ?? row.node?.node ?? "").toLowerCase().includes(state.needle)) : rows;
    place.style.height = `${Math.min(Math.max(state.rows.length, 4) * ROW + HEAD + 8, Math.max(260, innerHeight * 0.58))}px`;
    high = place.clientHeight;
    state.top = Math.min(state.top, Math.max(0, state.rows.length * ROW - (high - HEAD)));
    request();
  }
  function end() {
    let last = took ?? Math.max(now(), 1);
    if (took === null) for (const step of steps.values()) last = Math.max(last, step.finished ?? 0);
    return Math.max(last, 1) * 1.02;
  }
  const whole = () => { state.whole = true; state.from = 0; state.to = end(); request(); };
  /** Show another span of time, which stays while a run goes on. */
  const span = (from, to) => { state.whole = false; state.from = from; state.to = to; request(); };
  function request() { if (!pending) { pending = true; requestAnimationFrame(draw); } }
  const x = (ms) => names + (ms - state.from) / (state.to - state.from) * (wide - names - right);

  /** Whether a step's deadline is the one it has: a wait gives all that is not an attempt, or waits itself, more time. */
  function counts(step, last) {
    if (step.finished === null && (run.dataset.paused || step.state === "waiting")) return false;
    return ["leaf", "subrun"].includes(step.role) || step.deadline >= last;
  }
  function bar(row, y) {
    const step = row.step ?? { type: row.node.type, ready: row.node.ready, started: row.node.started, finished: row.node.finished, state: row.node.failed ? "failed" : row.node.finished === null ? "open" : row.node.leftOut === row.node.steps ? "skipped" : "succeeded", past: [], calls: [] };
    const top = y + (ROW - BAR) / 2, last = step.finished ?? (took === null ? now() : took);
    const isContainer = row.node ? row.node.allSteps > 1 : containers.has(step.key);
    const asks = step.type === "approval"; // waits for a person from the moment in which it is ready; no worker starts it
    const began = step.started ?? (isContainer || asks ? step.ready : last);
    const box = (from, to, colour, height = BAR, lift = 0) => {
      const left = Math.max(names, x(from)), end = Math.min(wide, x(to));
      if (end < names || left > wide) return;
      paint.fillStyle = colour;
      paint.fillRect(left, top + lift, Math.max(1, end - left), height);
    };
    box(step.ready, Math.min(began, last), colours.queue, 4, 4);
    step.past.forEach((past, i) => { if (past.to !== null) box(past.to, Math.min(step.past[i + 1]?.from ?? began, last), colours.backoff, 4, 4); });
    for (const [kind, from, ms] of waits.get(step.key) ?? []) box(from, from + ms, colours[kind], 4, 4);
    if (!asks) for (const past of step.past) if (past.from !== null) box(past.from, past.to, colours.bad, BAR);
    if (step.state !== "skipped") box(began, last, step.state === "failed" && !asks ? colours.bad : asks || step.state === "waiting" ? colours.waiting : step.state === "cancelled" ? colours.idle : colours.execution, isContainer ? 6 : BAR, isContainer ? 3 : 0);
    if (asks && step.state === "failed") box(last - (state.to - state.from) / 150, last, colours.bad); // it was refused at its end
    for (const [from, to] of step.calls) box(from, Math.min(to, last), colours.model, BAR - 4, 2);
    if (step.finished === null && step.state !== "open") box(last - (state.to - state.from) / 300, last, colours.live);
    if (row.step && waits.has(step.key)) box(step.ready, last, colours.path, 2, BAR + 1);
    if (step.deadline != null && counts(step, last) && x(step.deadline) > names && x(step.deadline) < wide) { paint.fillStyle = colours.deadline; paint.fillRect(x(step.deadline), y + 3, 1.5, ROW - 6); }
    const text = label(last - step.ready) + (step.cost && wide >= 600 ? `  ${dollars(step.cost)}` : ""), at = Math.min(Math.max(x(last), names) + 5, wide - right + 5);
    if (x(last) > names - 1 && x(step.ready) < wide) { paint.fillStyle = colours.dim; paint.fillText(text, at, y + ROW / 2); }
  }

  function draw() {
    pending = false;
    const ratio = devicePixelRatio || 1;
    wide = place.clientWidth; high = place.clientHeight;
    names = wide < 600 ? 110 : Math.min(260, wide * 0.24); right = wide < 600 ? 72 : 118;
    if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(high * ratio)) {
      canvas.width = Math.round(wide * ratio); canvas.height = Math.round(high * ratio);
      canvas.style.width = `${wide}px`; canvas.style.height = `${high}px`;
    }
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint.fillStyle = colours.page; paint.fillRect(0, 0, wide, high);
    paint.font = "12px system-ui, sans-serif"; paint.textBaseline = "middle";
    const first = Math.floor(state.top / ROW), last = Math.min(state.rows.length, first + Math.ceil((high - HEAD) / ROW) + 1);
    // lines of time
    const span = state.to - state.from, raw = span / Math.max(2, (wide - names) / 110);
    const power = 10 ** Math.floor(Math.log10(raw)), unit = [1, 2, 5, 10].find((one) => one * power >= raw) * power;
    paint.strokeStyle = colours.line; paint.fillStyle = colours.dim; paint.lineWidth = 1;
    for (let t = Math.ceil(state.from / unit) * unit; t <= state.to; t += unit) {
      const at = Math.round(x(t)) + 0.5;
      paint.beginPath(); paint.moveTo(at, HEAD); paint.lineTo(at, high); paint.stroke();
      paint.fillText(label(t), at + 3, HEAD / 2);
    }
    for (let i = first; i < last; i++) {
      const row = state.rows[i], y = HEAD + i * ROW - state.top;
      if (i === state.chosen || i === state.hover) { paint.fillStyle = colours.soft; paint.fillRect(0, y, wide, ROW); }
      paint.save(); paint.beginPath(); paint.rect(0, Math.max(y, HEAD), names - 8, ROW); paint.clip();
      paint.fillStyle = row.step?.state === "failed" ? colours.bad : ["skipped", "cancelled"].includes(row.step?.state) ? colours.idle : colours.text;
      if (row.more) { paint.fillStyle = colours.accent; paint.fillText("load more steps …", 28, y + ROW / 2); }
      else if (row.node) paint.fillText(`${row.node.allSteps > 1 ? (opened.has(row.node.node) ? "▾ " : "▸ ") : ""}${row.node.node}${row.node.steps > 1 ? `  ${row.node.succeeded.toLocaleString("en")}/${row.node.steps.toLocaleString("en")}` : ""}`, 10, y + ROW / 2);
      else { const name = row.step.key.length > 60 ? "…" + row.step.key.slice(-59) : row.step.key; paint.fillText(row.depth && name.startsWith(row.step.parent ?? "\u0000") ? name.slice(row.step.parent.length) || name : name, 10 + 12 * (row.depth || 0), y + ROW / 2); }
      paint.restore();
      if (row.more) continue;
      paint.save(); paint.beginPath(); paint.rect(names, HEAD, wide - names, high - HEAD); paint.clip(); bar(row, y); paint.restore();
    }
    const over = x(Number(run.dataset.allowed));
    if (!run.dataset.paused && over > names && over < wide) { paint.fillStyle = colours.deadline; paint.fillRect(over, HEAD, 2, high); }
    paint.fillStyle = colours.page; paint.fillRect(0, 0, names, HEAD); paint.fillStyle = colours.dim;
    paint.fillText(`${state.rows.length.toLocaleString("en")} ${folded ? "row" : "step"}${state.rows.length === 1 ? "" : "s"}`, 10, HEAD / 2);
    paint.strokeStyle = colours.line; paint.beginPath(); paint.moveTo(0, HEAD + 0.5); paint.lineTo(wide, HEAD + 0.5); paint.moveTo(names + 0.5, 0); paint.lineTo(names + 0.5, high); paint.stroke();
    document.getElementById("zoomed").textContent = `${label(Math.max(0, state.from))} to ${label(state.to)}`;
  }

  function zoom(factor, around = (state.from + state.to) / 2) {
    const wanted = Math.min(Math.max((state.to - state.from) * factor, 0.05), end() * 4);
    const from = around - wanted * (around - state.from) / (state.to - state.from);
    span(from, from + wanted);
  }
  function scroll(by) { state.top = Math.min(Math.max(0, state.top + by), Math.max(0, state.rows.length * ROW - (high - HEAD) + ROW)); request(); }
  async function pick(index) {
    const row = state.rows[index];
    if (!row) return;
    state.chosen = index; request();
    if (row.more || (row.node && row.node.allSteps > 1)) {
      const node = row.more ?? row.node;
      if (!row.more && opened.has(node.node)) { opened.delete(node.node); arrange(); return; }
      if (row.more || !node.loaded) {
        const data = await load(node.node, row.more ? node.next : "");
        if (!data) return;
        take(data); node.loaded = true; node.next = data.next; place.dataset.loaded = steps.size;
      }
      opened.add(node.node); arrange();
      return;
    }
    show(row.step?.key ?? row.node.node);
  }
  const SENDING_MS = 1000; // how often it is looked whether an answer was sent
  let showing = 0, shown = "", known = "";
  const saysOf = (step) => step ? `${step.state} ${step.attempt}` : "";
  async function show(key) {
    const path = key.split("/").map(encodeURIComponent).join("/"), turn = ++showing, panel = document.getElementById("panel");
    if (key !== shown) known = saysOf(steps.get(key));
    shown = key;
    const part = await hocket.part(`/runs/${run.dataset.run}/steps/${path}`);
    if (part === null || turn !== showing) return;
    const form = panel.querySelector("form.answer"), own = form?.elements.name.value === key ? form : null;
    if (own?.dataset.sending) { setTimeout(() => { if (turn === showing) show(key); }, SENDING_MS); return; }
    const found = new DOMParser().parseFromString(part, "text/html").body;
    const isTyped = own && (own.contains(document.activeElement) || own.elements["payload.note"].value);
    if (isTyped && found.querySelector("form.answer")) return; // it waits still
    const isRead = panel.contains(document.activeElement);
    if (isTyped) { putAround(own, found.querySelector(".step")); hocket.decided(own); } else panel.replaceChildren(...found.childNodes);
    if (isRead && !panel.contains(document.activeElement)) panel.focus({ preventScroll: true });
  }
  /** Show a step around a form that stays in its place, so that whoever types goes on. */
  function putAround(form, step) {
    const nodes = [...step.childNodes], above = nodes.indexOf(step.querySelector(".facts")) + 1;
    for (const one of [...form.parentElement.childNodes]) if (one !== form) one.remove();
    form.before(...nodes.slice(0, above));
    form.after(...nodes.slice(above));
  }
  /** The step beside the timeline, if it is not what it was. */
  function again(step) {
    if (step.step !== shown || saysOf(step) === known) return;
    known = saysOf(step);
    show(shown);
  }
  const rowAt = (event) => event.offsetY < HEAD ? -1 : Math.floor((event.offsetY - HEAD + state.top) / ROW);
  const timeAt = (event) => state.from + (event.offsetX - names) / (wide - names - right) * (state.to - state.from);

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey || event.shiftKey) zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, timeAt(event));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { const by = event.deltaX / (wide - names) * (state.to - state.from); span(state.from + by, state.to + by); }
    else scroll(event.deltaY);
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = { x: event.offsetX, y: event.offsetY, from: state.from, to: state.to, top: state.top, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) { const at = rowAt(event); if (at !== state.hover) { state.hover = at; request(); } return; }
    const by = event.offsetX - held.x, down = event.offsetY - held.y;
    if (Math.abs(by) + Math.abs(down) > 4) held.moved = true;
    if (!held.moved) return;
    const shift = by / (wide - names - right) * (held.to - held.from);
    span(held.from - shift, held.to - shift); state.top = held.top; scroll(-down);
  });
  canvas.addEventListener("pointerup", (event) => { const wasClick = held && !held.moved; held = null; if (wasClick) pick(rowAt(event)); });
  canvas.addEventListener("pointercancel", () => { held = null; });
  canvas.addEventListener("dblclick", whole);
  canvas.addEventListener("pointerleave", () => { state.hover = -1; request(); });
  place.addEventListener("keydown", (event) => {
    const keys = {
      "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1.4), 0: whole,
      ArrowLeft: () => { const by = (state.to - state.from) / 10; span(state.from - by, state.to - by); },
      ArrowRight: () => { const by = (state.to - state.from) / 10; span(state.from + by, state.to + by); },
      ArrowDown: () => move(1), ArrowUp: () => move(-1), PageDown: () => scroll(high - HEAD), PageUp: () => scroll(HEAD - high),
      Enter: () => pick(state.chosen),
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  function move(by) {
    state.chosen = Math.max(0, Math.min(state.rows.length - 1, state.chosen + by));
    const y = state.chosen * ROW;
    if (y < state.top) state.top = y;
    if (y + ROW > state.top + high - HEAD) state.top = y + ROW - (high - HEAD);
    request();
  }
  document.getElementById("zoom-in").addEventListener("click", () => zoom(0.7));
  document.getElementById("zoom-out").addEventListener("click", () => zoom(1.4));
  document.getElementById("zoom-all").addEventListener("click", whole);
  document.getElementById("search").addEventListener("input", (event) => { state.needle = event.target.value.trim().toLowerCase(); state.top = 0; arrange(); });
  let early = null; // a node that was chosen on the graph before the steps were there
  const choose = (detail) => {
    if (!state.rows.length) { early = detail; return; }
    const index = state.rows.findIndex((row) => (row.step?.key ?? row.node?.node) === detail || row.step?.node === detail);
    if (index >= 0) { state.chosen = index; state.top = Math.max(0, index * ROW - high / 3); scroll(0); show(state.rows[index].step?.key ?? detail); }
  };
  document.addEventListener("hocket:node", ({ detail }) => choose(detail));
  document.addEventListener("hocket:theme", () => { learn(); request(); });
  const since = (time) => time ? Date.parse(time) - Date.parse(run.dataset.accepted) : null;
  let arranging = null;
  document.addEventListener("hocket:facts", request);
  document.addEventListener("hocket:step", ({ detail: step }) => {
    again(step);
    if (folded) return;
    steps.set(step.step, { key: step.step, node: step.node, type: step.type, role: step.role, parent: step.parent ?? null, state: step.state, attempt: step.attempt, ready: since(step.ready_at), started: since(step.started_at) ?? since(step.dispatched_at), finished: since(step.finished_at), deadline: since(step.deadline_at), slack: step.slack_ms ?? null, cost: steps.get(step.step)?.cost ?? null, calls: steps.get(step.step)?.calls ?? [], past: (step.attempts ?? []).map((past) => ({ attempt: past.attempt, outcome: past.outcome, from: since(past.started_at), to: since(past.finished_at) })) });
    arranging ??= setTimeout(() => { arranging = null; arrange(); }, 100);
  });

  learn();
  const data = await load();
  if (!data) return;
  folded = data.columns === null;
  for (const node of data.nodes) nodes.set(node.node, node);
  if (folded) { for (const node of nodes.values()) node.next = null; } else take(data);
  high = place.clientHeight;
  whole(); arrange();
  // without a choice, what somebody opens this page for: the step that failed, or waits for an answer
  const blamed = [...steps.values()].find((step) => step.state === "failed" && !containers.has(step.key)) ?? [...steps.values()].find((step) => step.state === "waiting");
  if (early) choose(early); else if (blamed) choose(blamed.key);
  const go = () => { if (state.whole) whole(); else request(); };
  const clock = took === null ? setInterval(go, 500) : null;
  document.addEventListener("hocket:ended", ({ detail }) => { took = detail; clearInterval(clock); go(); if (shown) show(shown); });
  new ResizeObserver(request).observe(place);
});
