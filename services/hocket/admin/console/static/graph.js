// A pipeline's graph by dagre, drawn as SVG. A node's colour is the state of its steps.
"use strict";
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".drawing").forEach(async (place, index) => {
  const answer = await fetch(place.dataset.src);
  if (!answer.ok) { place.textContent = "The graph cannot be shown."; return; }
  const data = await answer.json();
  const svgNs = "http://www.w3.org/2000/svg";
  const make = (name, attributes, parent) => {
    const element = document.createElementNS(svgNs, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    parent?.append(element);
    return element;
  };
  const graph = new dagre.graphlib.Graph({ compound: true });
  graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 34, marginx: 6, marginy: 6 });
  graph.setDefaultEdgeLabel(() => ({}));
  const parents = new Set(data.boxes.map((box) => box.parent).filter(Boolean));
  const TITLE = 24; // above the boxes in a group
  if (parents.size) { graph.graph().nodesep = 46; graph.graph().marginy = TITLE + 6; }
  const states = new Map((data.nodes || []).map((node) => [node.node, node]));
  for (const box of data.boxes) {
    const node = states.get(box.id), counted = node && node.steps > 1 ? ` ${node.succeeded}/${node.steps} ·` : "";
    const label = Math.max(box.name.length * 7.6, (box.type + box.mark + counted).length * 6 + 18);
    graph.setNode(box.id, { width: Math.min(260, Math.max(84, label + 22)), height: 42 });
  }
  for (const box of data.boxes) if (box.parent && graph.hasNode(box.parent)) graph.setParent(box.id, box.parent);
  // dagre has no arrows between groups: they go between a leaf of each
  const leaf = (id) => { let at = id; for (;;) { const child = data.boxes.find((box) => box.parent === at); if (!child) return at; at = child.id; } };
  for (const [from, to] of data.arrows) graph.setEdge(leaf(from), leaf(to));
  dagre.layout(graph);
  const { width, height } = graph.graph();
  const svg = make("svg", { width: Math.ceil(width), height: Math.ceil(height), viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`, role: "img", "aria-label": `Graph with ${data.boxes.length} nodes` });
  const marker = make("marker", { id: `head${index}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, make("defs", {}, svg));
  make("path", { d: "M0 0 8 4 0 8z" }, marker);
  const stateOf = (node) => !node ? "" : node.failed ? "bad" : node.finished !== null ? "done" : "live";
  const order = data.boxes.slice().sort((a, b) => (parents.has(b.id) ? 1 : 0) - (parents.has(a.id) ? 1 : 0));
  for (const box of order) {
    const at = graph.node(box.id), node = states.get(box.id), isGroup = parents.has(box.id);
    const group = make("g", { class: `box ${isGroup ? "group" : ""} ${stateOf(node)}`, "data-node": box.id, transform: `translate(${at.x - at.width / 2},${at.y - at.height / 2})` }, svg);
    make("rect", { y: isGroup ? -TITLE + 8 : 0, width: at.width, height: at.height + (isGroup ? TITLE - 8 : 0), rx: 7 }, group);
    const name = make("text", { x: 10, y: isGroup ? 1 : 18 }, group);
    name.textContent = box.name.length > 30 ? box.name.slice(0, 29) + "…" : box.name;
    const sub = make("text", isGroup ? { x: at.width - 10, y: 1, "text-anchor": "end", class: "sub" } : { x: 10, y: 33, class: "sub" }, group);
    sub.textContent = [box.type, box.mark, node && node.steps > 1 ? `${node.succeeded}/${node.steps}` : ""].filter(Boolean).join(" · ");
    group.addEventListener("click", (event) => {
      event.stopPropagation();
      svg.querySelectorAll(".chosen").forEach((one) => one.classList.remove("chosen"));
      group.classList.add("chosen");
      document.dispatchEvent(new CustomEvent("hocket:node", { detail: box.id }));
    });
  }
  for (const edge of graph.edges()) {
    const points = graph.edge(edge).points;
    make("path", { class: "arrow", "marker-end": `url(#head${index})`, d: "M" + points.map((point) => `${point.x} ${point.y}`).join(" L") }, svg);
  }
  place.replaceChildren(svg);
  if (data.more > 0) { const note = document.createElement("p"); note.className = "dim"; note.textContent = `${data.more} more nodes are not drawn.`; place.append(note); }
  document.addEventListener("hocket:step", ({ detail }) => {
    const group = [...svg.querySelectorAll(".box")].find((one) => one.dataset.node === detail.node);
    if (group) { group.classList.remove("done", "bad", "live"); group.classList.add(detail.state === "succeeded" ? "done" : detail.state === "failed" ? "bad" : "live"); }
  });
}));
