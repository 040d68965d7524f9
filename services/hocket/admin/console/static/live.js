// What is open changes as runs do: rows in place, a run's steps, and its head at its end. Nothing jumps.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const HEAL_MS = 10000, MOST = 50;
  const { address, part } = hocket;

  // the list: rows that are shown change in place; new ones come on top where nobody reads or chooses
  const table = document.getElementById("runs");
  if (table && "live" in table.dataset) {
    const body = table.tBodies[0], bar = document.getElementById("fresh");
    const row = (id) => body.querySelector(`tr[data-run="${id}"]`);
    const waiting = new Set();
    let stale = false;
    const calm = () => scrollY < 40 && !body.querySelector("tr.chosen, :focus, :checked");
    function show(lines, fits) {
      const found = document.createElement("tbody");
      found.innerHTML = lines;
      for (const line of [...found.rows].reverse()) {
        const old = row(line.dataset.run);
        if (old) { line.querySelector("[data-pick]").checked = old.querySelector("[data-pick]").checked; line.classList.toggle("chosen", old.classList.contains("chosen")); const held = old.contains(document.activeElement); old.replaceWith(line); if (held) line.querySelector("a").focus({ preventScroll: true }); }
        else if (!fits(line)) continue;
        else if (calm()) { body.prepend(line); if (body.rows.length > MOST * 2) body.lastElementChild.remove(); }
        else waiting.add(line.dataset.run);
      }
      bar.hidden = waiting.size === 0;
      bar.firstElementChild.textContent = `Show ${waiting.size} new run${waiting.size === 1 ? "" : "s"}`;
    }
    const filters = () => { const query = new URLSearchParams(location.search); query.delete("tenant"); return query; };
    async function ask(name, ids) {
      const query = filters();
      query.set(name, ids.slice(-MOST).join(","));
      const text = ids.length ? await part(`/live/rows?${query}`) : null;
      if (text !== null) show(text, () => true);
    }
    hocket.acts.showFresh = () => { scrollTo(0, 0); const ids = [...waiting]; waiting.clear(); bar.hidden = true; document.activeElement.blur(); body.querySelector("tr.chosen")?.classList.remove("chosen"); ask("fresh", ids); };
    const query = filters();
    query.delete("after");
    const stream = new EventSource(address(`/live/runs?${query}`));
    stream.addEventListener("open", () => { table.dataset.live = "open"; });
    stream.addEventListener("rows", (event) => {
      const { lines, left_out } = JSON.parse(event.data);
      stale ||= left_out;
      show(lines, (line) => "fits" in line.dataset);
    });
    // more has changed than was told: what is shown as running may have ended
    setInterval(() => {
      if (!stale || document.hidden) return;
      stale = false;
      ask("shown", [...body.querySelectorAll(".status.running")].map((one) => one.closest("tr").dataset.run));
    }, HEAL_MS);
  }

  // a run that goes on
  const run = document.getElementById("run");
  if (!run || run.dataset.status !== "running") return;
  const began = Date.parse(run.dataset.accepted);
  const clock = setInterval(() => {
    const ms = Date.now() - began, took = document.getElementById("took");
    if (took) took.textContent = ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60000)} min ${Math.floor(ms / 1000) % 60} s`;
  }, 250);
  const stream = new EventSource(address(`/live/runs/${run.dataset.run}`));
  stream.addEventListener("step", (event) =>
    document.dispatchEvent(new CustomEvent("hocket:step", { detail: JSON.parse(event.data) })));
  stream.addEventListener("run", async () => {
    stream.close(); clearInterval(clock);
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("header.head").replaceWith(page.querySelector("header.head"));
    for (const dialog of page.querySelectorAll("dialog[id^=dialog-]")) document.getElementById(dialog.id)?.replaceWith(dialog);
    if (!document.getElementById("timeline")) { const tabs = (root) => { const nodes = []; let node = root.querySelector(".tabs"); while ((node = node.nextSibling)) nodes.push(node); return nodes; }; tabs(document).forEach((node) => node.remove()); document.querySelector(".tabs").after(...tabs(page)); }
    run.dataset.status = page.getElementById("run").dataset.status;
  });
});
