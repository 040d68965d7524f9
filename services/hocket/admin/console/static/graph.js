// A pipeline's graph by dagre, drawn as SVG. A node says the state of its steps in colour and in words; in a
// run that goes on it changes as they do, and what a planner emits comes as it begins.
"use strict";
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".drawing").forEach(async (place, index) => {
  const TITLE = 24, AGAIN_MS = 1000; // above the boxes in a group; how often it is asked how far the nodes are
  const svgNs = "http://www.w3.org/2000/svg";
  const make = (name, attributes, parent) => {
    const element = document.createElementNS(svgNs, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    parent?.append(element);
    return element;
  };
  const stateOf = (node) => !node ? "" : node.failed ? "bad" : node.finished === null ? "live" : node.leftOut === node.steps ? "idle" : "done";
  const WORDS = { "": "", bad: "failed", done: "done", live: "running", idle: "left out" };
  const word = (box, node) => box.type === "approval" && stateOf(node) === "live" ? "waiting" : WORDS[stateOf(node)];
  const said = (box, node) => [box.type, box.mark, node && node.steps > 1 ? `${node.succeeded}/${node.steps}` : "", word(box, node)].filter(Boolean).join(" · ");
  let drawn = "", boxes = new Map(), fit = null, latest = null;

  async function load() {
    const answer = await hocket.ask(place.dataset.src).catch(() => null);
    return answer?.ok ? answer.json() : null;
  }
  function show(data) {
    latest = data;
    const states = new Map((data.nodes || []).map((node) => [node.node, node]));
    const ids = JSON.stringify(data.boxes.map((box) => box.id));
    if (ids !== drawn && !place.contains(document.activeElement)) { drawn = ids; layOut(data, states); } // nothing jumps under a key
    for (const box of data.boxes) {
      const group = boxes.get(box.id), node = states.get(box.id);
      if (!group) continue;
      group.classList.remove("done", "bad", "live", "idle");
      if (stateOf(node)) group.classList.add(stateOf(node));
      group.querySelector(".sub").textContent = said(box, node);
      group.setAttribute("aria-label", `${box.name}, ${said(box, node)}`);
    }
  }
  function layOut(data, states) {
    const graph = new dagre.graphlib.Graph({ compound: true });
    graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 34, marginx: 6, marginy: 6 });
    graph.setDefaultEdgeLabel(() => ({}));
    const parents = new Set(data.boxes.map((box) => box.parent).filter(Boolean));
    if (parents.size) { graph.graph().nodesep = 46; graph.graph().marginy = TITLE + 6; }
    const room = document.getElementById("run")?.dataset.status === "running" ? 10 : 0; // for a word that comes
    for (const box of data.boxes) {
      const label = Math.max(box.name.length * 7.6, (said(box, states.get(box.id)).length + room) * 5.7);
      graph.setNode(box.id, { width: Math.min(260, Math.max(84, label + 22)), height: 42 });
    }
    for (const box of data.boxes) if (box.parent && graph.hasNode(box.parent)) graph.setParent(box.id, box.parent);
    // dagre has no arrows between groups: they go between a leaf of each
    const leaf = (id) => { let at = id; for (;;) { const child = data.boxes.find((box) => box.parent === at); if (!child) return at; at = child.id; } };
    for (const [from, to] of data.arrows) graph.setEdge(leaf(from), leaf(to));
    dagre.layout(graph);
    const { width, height } = graph.graph();
    const svg = make("svg", { width: Math.ceil(width), height: Math.ceil(height), viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`, role: "group", "aria-label": `Graph with ${data.boxes.length} nodes` });
    const marker = make("marker", { id: `head${index}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, make("defs", {}, svg));
    make("path", { d: "M0 0 8 4 0 8z" }, marker);
    const order = data.boxes.slice().sort((a, b) => (parents.has(b.id) ? 1 : 0) - (parents.has(a.id) ? 1 : 0));
    boxes = new Map();
    for (const box of order) {
      const at = graph.node(box.id), isGroup = parents.has(box.id);
      const group = make("g", { class: `box ${isGroup ? "group" : ""}`, "data-node": box.id, transform: `translate(${at.x - at.width / 2},${at.y - at.height / 2})` }, svg);
      make("rect", { y: isGroup ? -TITLE + 8 : 0, width: at.width, height: at.height + (isGroup ? TITLE - 8 : 0), rx: 7 }, group);
      const name = make("text", { x: 10, y: isGroup ? 1 : 18 }, group);
      name.textContent = box.name.length > 30 ? box.name.slice(0, 29) + "…" : box.name;
      make("text", isGroup ? { x: at.width - 10, y: 1, "text-anchor": "end", class: "sub" } : { x: 10, y: 33, class: "sub" }, group);
      boxes.set(box.id, group);
      if (!document.getElementById("timeline")) { group.setAttribute("role", "img"); continue; } // nothing to open it beside
      group.setAttribute("role", "button");
      group.setAttribute("tabindex", "0");
      const choose = (event) => {
        event.stopPropagation();
        svg.querySelectorAll(".chosen").forEach((one) => one.classList.remove("chosen"));
        group.classList.add("chosen");
        document.dispatchEvent(new CustomEvent("hocket:node", { detail: box.id }));
      };
      group.addEventListener("click", choose);
      group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(event); } });
    }
    for (const edge of graph.edges()) {
      const points = graph.edge(edge).points;
      make("path", { class: "arrow", "marker-end": `url(#head${index})`, d: "M" + points.map((point) => `${point.x} ${point.y}`).join(" L") }, svg);
    }
    place.replaceChildren(svg);
    offerFit(svg);
    if (data.more > 0) { const note = document.createElement("p"); note.className = "dim"; note.textContent = `${data.more} more nodes are not drawn.`; place.append(note); }
  }

  /** A graph that is larger than its place is seen in parts, or small and whole. */
  function offerFit(svg) {
    const view = place.closest(".graph");
    if (fit || (svg.clientWidth <= view.clientWidth && svg.clientHeight <= view.clientHeight)) return;
    fit = document.createElement("p");
    fit.className = "fit";
    const button = document.createElement("button");
    button.type = "button"; button.textContent = "Fit"; button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => { button.setAttribute("aria-pressed", String(place.classList.toggle("whole"))); begin(); });
    fit.append(button);
    place.before(fit);
  }
  /** Begin where somebody wants to look: at the first node that failed, else that runs, else that there is. */
  function begin() {
    const states = new Map((latest.nodes || []).map((node) => [node.node, stateOf(node)])), parents = new Set(latest.boxes.map((box) => box.parent));
    const found = latest.boxes.filter((box) => !parents.has(box.id)), first = (state) => found.find((box) => states.get(box.id) === state);
    const group = boxes.get((first("bad") ?? first("live") ?? found[0])?.id), view = place.closest(".graph");
    if (!group || !view) return;
    const at = group.getBoundingClientRect(), frame = view.getBoundingClientRect();
    view.scrollBy(at.left + at.width / 2 - frame.left - view.clientWidth / 2, at.top + at.height / 2 - frame.top - view.clientHeight / 2);
  }

  const data = await load();
  if (!data) { place.textContent = "The graph cannot be shown."; return; }
  show(data);
  begin();
  let due = null;
  document.addEventListener("hocket:step", () => {
    due ??= setTimeout(async () => {
      due = null;
      const now = await load();
      if (now) show(now);
    }, AGAIN_MS);
  });
}));
