// What is open changes as runs do: rows in place, a run's steps, and its head at its end. Nothing jumps.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const HEAL_MS = 10000, MOST = 50, AGAIN_MS = 2000, AGAIN_MOST_MS = 60000;
  const { address, part, duration } = hocket;

  /** Follow events by name until closed. Browsers reconnect by themselves, but not after an answer that is no stream, such as a proxy's while the server restarts. */
  function follow(path, heard) {
    let source = null, timer = null, wait = AGAIN_MS;
    function open() {
      source = new EventSource(address(path));
      for (const [name, hear] of Object.entries(heard)) source.addEventListener(name, hear);
      source.addEventListener("open", () => { wait = AGAIN_MS; });
      source.addEventListener("error", () => {
        if (source.readyState !== EventSource.CLOSED) return;
        timer = setTimeout(open, wait);
        wait = Math.min(2 * wait, AGAIN_MOST_MS);
      });
    }
    open();
    return { close: () => { clearTimeout(timer); source.close(); } };
  }

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
      for (let from = 0; from < ids.length; from += MOST) { // a request names no more
        const query = filters();
        query.set(name, ids.slice(from, from + MOST).join(","));
        const text = await part(`/live/rows?${query}`);
        if (text !== null) show(text, () => true);
      }
    }
    hocket.acts.showFresh = () => { scrollTo(0, 0); const ids = [...waiting].slice(-MOST * 2); waiting.clear(); bar.hidden = true; document.activeElement.blur(); body.querySelector("tr.chosen")?.classList.remove("chosen"); ask("fresh", ids); };
    const query = filters();
    query.delete("after");
    let isFirst = true;
    follow(`/live/runs?${query}`, {
      open: () => { stale ||= !isFirst; isFirst = false; table.dataset.live = "open"; },
      error: () => { isFirst = false; }, // while it was away, runs may have ended
      rows: (event) => {
        const { lines, left_out } = JSON.parse(event.data);
        stale ||= left_out;
        show(lines, (line) => "fits" in line.dataset);
      },
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
    if (took) took.textContent = ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : duration(ms);
  }, 250);

  /** This page as the server makes it now; null where it does not. */
  async function page() {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
    return answer?.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
  }

  // what its steps have left burns down; those that changed are read again, all together
  const burning = () => document.querySelector("table[data-burning]");
  const ahead = burning() ? Date.parse(burning().dataset.burning) - Date.now() : 0;
  function burn() {
    const now = Date.now() + ahead, x = Math.min(1000, 1000 * (now - began) / Number(run.dataset.allowed));
    for (const line of burning()?.querySelectorAll("tr[data-until]") ?? []) {
      const left = Date.parse(line.dataset.until) - now, cell = line.querySelector("[data-left]");
      const late = document.createElement("span");
      late.className = "missed";
      late.textContent = `${duration(-left)} late`;
      cell.replaceChildren(left < 0 ? late : duration(left));
      const [waited, ran] = line.querySelectorAll(".kind-queue, .kind-execution");
      const bar = "started" in line.dataset ? ran : waited;
      bar.setAttribute("width", Math.max(2, x - Number(bar.getAttribute("x"))));
      if (bar === waited) ran.setAttribute("x", x);
    }
  }
  let changed = false;
  document.addEventListener("hocket:step", () => { changed = true; });
  const burner = setInterval(async () => {
    if (document.hidden || !changed) return;
    changed = false;
    const now = await page(), found = now?.querySelector("table[data-burning]"), facts = now?.querySelectorAll("[data-fact]") ?? [];
    document.querySelectorAll("[data-fact]").forEach((one, i) => { if (facts[i]) one.replaceWith(facts[i]); }); // its money
    if (found && !burning()?.contains(document.activeElement)) burning()?.replaceWith(found);
  }, 2000);
  // lines that its handlers log come without a step's change, too
  const logs = () => document.getElementById("logs"), later = new URLSearchParams(location.search).has("after");
  const reader = setInterval(async () => {
    if (document.hidden || !logs() || later) return;
    const found = (await page())?.getElementById("logs");
    if (found && !logs()?.contains(document.activeElement)) logs()?.replaceWith(found);
  }, 2000);
  const flame = setInterval(burn, 250);
  const stream = follow(`/live/runs/${run.dataset.run}`, {
    step: (event) => document.dispatchEvent(new CustomEvent("hocket:step", { detail: JSON.parse(event.data) })),
    run: last,
  });
  async function last(event) {
    document.dispatchEvent(new CustomEvent("hocket:ended", { detail: JSON.parse(event.data).duration_ms }));
    stream.close(); [clock, burner, reader, flame].forEach(clearInterval);
    const ended = await page();
    if (!ended) return;
    document.querySelector("header.head").replaceWith(ended.querySelector("header.head"));
    for (const dialog of ended.querySelectorAll("dialog[id^=dialog-]")) { document.getElementById(dialog.id)?.remove(); document.body.append(dialog); } // what an ended run offers is not what one that goes on does
    if (!document.getElementById("timeline")) { const tabs = (root) => { const nodes = []; let node = root.querySelector(".tabs"); while ((node = node.nextSibling)) nodes.push(node); return nodes; }; tabs(document).forEach((node) => node.remove()); document.querySelector(".tabs").after(...tabs(ended)); }
    run.dataset.status = ended.getElementById("run").dataset.status;
  }
});
