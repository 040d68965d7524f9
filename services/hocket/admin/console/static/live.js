// What is open changes as runs do: rows in place, a run's steps, and its head at its end. Nothing jumps.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const HEAL_MS = 10000, TICK_MS = 1000, MOST = 50, AGAIN_MS = 2000, AGAIN_MOST_MS = 60000, AT_ONCE = 2;
  const { address, ask, cut, part, page, duration, knownMs, heardMs, isIdle } = hocket;

  /** Follow events by name while the page is seen, until closed: browsers open few connections to a server. Whoever hears `open` is told whether something may have been missed. They reconnect by themselves, but not after an answer that is no stream, such as a proxy's while the server restarts. */
  function follow(path, heard) {
    let source = null, timer = null, wait = AGAIN_MS, failed = 0, since = null, place = "", isAgain = false, isOver = false;
    function open() {
      source = new EventSource(address(place ? `${path}?since=${place}` : path));
      for (const [name, hear] of Object.entries(heard)) source.addEventListener(name, (event) => { place = event.lastEventId || place; hear(event, isAgain); });
      source.addEventListener("open", () => { wait = AGAIN_MS; failed = 0; since = null; isAgain = true; cut(null); });
      source.addEventListener("error", () => {
        if (!source) return;
        since ??= heardMs();
        isAgain = true; failed += 1;
        if (source.readyState === EventSource.CLOSED) timer = setTimeout(again, failed > AT_ONCE ? wait : 0);
        else if (failed > 1) cut(since);
      });
    }
    /** Ask what the server says instead of a stream, until it is one. */
    async function again() {
      const refused = source, answer = await ask(refused.url, { headers: { Accept: "text/event-stream" } }).catch(() => null);
      answer?.body?.cancel().catch(() => {});
      if (source !== refused || answer?.status === 401) return;
      if (answer?.ok && answer.headers.get("content-type")?.startsWith("text/event-stream")) { open(); return; }
      if (answer?.status === 422 && place) { place = ""; open(); return; } // a server of the release before knows no place
      cut(since, answer ? `The server answered ${answer.status}.` : undefined);
      timer = setTimeout(again, wait);
      wait = Math.min(2 * wait, AGAIN_MOST_MS);
    }
    function stop() { clearTimeout(timer); source?.close(); source = null; isAgain = true; }
    function look() {
      if (isIdle() || isOver) stop();
      else if (!source) open();
    }
    document.addEventListener("visibilitychange", look);
    addEventListener("pagehide", stop);
    addEventListener("pageshow", look);
    for (const name of ["hocket:out", "hocket:in"]) document.addEventListener(name, look);
    look();
    return { close: () => { isOver = true; stop(); } };
  }

  // the list: rows that are shown change in place; new ones come on top where nobody reads or chooses
  const table = document.getElementById("runs"), none = document.getElementById("none");
  const filters = () => { const query = new URLSearchParams(location.search); query.delete("tenant"); return query; };
  const ofList = () => { const query = filters(); query.delete("after"); return `/live/runs?${query}`; };
  if (none && "live" in none.dataset) {
    const bar = document.getElementById("fresh");
    bar.firstElementChild.textContent = "Show new runs";
    hocket.acts.showFresh = () => location.reload();
    const fit = (lines) => { const found = document.createElement("tbody"); found.innerHTML = lines; if (found.querySelector("[data-fits]")) bar.hidden = false; };
    follow(ofList(), {
      open: async (_, isAgain) => {
        none.dataset.live = "open";
        if (isAgain && (await page())?.getElementById("runs")) bar.hidden = false;
      },
      rows: (event) => fit(JSON.parse(event.data).lines),
    });
  }
  if (table && "live" in table.dataset) {
    const body = table.tBodies[0], bar = document.getElementById("fresh");
    const row = (id) => body.querySelector(`tr[data-run="${id}"]`);
    const waiting = new Set(), isGoing = (line) => line.querySelector(".status.running") !== null;
    let stale = false, isGap = false;
    const calm = () => scrollY < 40 && !body.querySelector("tr.chosen, :focus, :checked");
    function show(lines, fits) {
      const found = document.createElement("tbody");
      found.innerHTML = lines;
      for (const line of [...found.rows].reverse()) {
        const old = row(line.dataset.run);
        if (old && !isGoing(old) && isGoing(line)) continue; // read before it ended
        if (old) { line.querySelector("[data-pick]").checked = old.querySelector("[data-pick]").checked; line.classList.toggle("chosen", old.classList.contains("chosen")); const held = old.contains(document.activeElement); old.replaceWith(line); if (held) line.querySelector("a").focus({ preventScroll: true }); }
        else if (!fits(line)) continue;
        else if (calm()) putOnTop([line]);
        else waiting.add(line.dataset.run);
      }
      offerFresh();
    }
    function putOnTop(lines) {
      body.prepend(...lines);
      for (const line of lines) waiting.delete(line.dataset.run);
      while (body.rows.length > MOST * 2) body.lastElementChild.remove();
    }
    function offerFresh() {
      bar.hidden = !isGap && waiting.size === 0;
      bar.firstElementChild.textContent = isGap ? "Show new runs" : `Show ${waiting.size} new run${waiting.size === 1 ? "" : "s"}`;
    }
    async function load(name, ids) {
      for (let from = 0; from < ids.length; from += MOST) { // a request names no more
        const query = filters();
        query.set(name, ids.slice(from, from + MOST).join(","));
        const text = await part(`/live/rows?${query}`);
        if (text !== null) show(text, () => true);
      }
    }
    hocket.acts.showFresh = () => { scrollTo(0, 0); if (isGap) { location.reload(); return; } const ids = [...waiting].slice(-MOST * 2); waiting.clear(); bar.hidden = true; document.activeElement.blur(); body.querySelector("tr.chosen")?.classList.remove("chosen"); load("fresh", ids); };
    const going = () => [...body.querySelectorAll(".status.running")].map((one) => one.closest("tr").dataset.run);
    /** What came and what ended while nothing was heard. */
    async function catchUp() {
      const before = new Set([...body.rows].map((one) => one.dataset.run));
      const now = await page(), found = now?.getElementById("runs")?.tBodies[0];
      stale = true; // some may have ended while the page was made
      if (found) { show(found.innerHTML, () => false); join(now, [...found.rows], before); }
      await load("shown", going().filter((id) => !found?.querySelector(`tr[data-run="${id}"]`)));
    }
    /** Put what came above the rows that were there before. If more came than a page holds, it takes their place. */
    function join(now, lines, before) {
      const ids = lines.map((line) => line.dataset.run), known = ids.findIndex((id) => before.has(id));
      const fresh = known < 0 ? lines : lines.slice(0, known);
      if (!calm()) {
        if (known < 0) isGap = true;
        else for (const line of fresh) if (!row(line.dataset.run)) waiting.add(line.dataset.run);
        offerFresh();
        return;
      }
      const meanwhile = [...body.rows].filter((one) => !before.has(one.dataset.run) && !ids.includes(one.dataset.run));
      const top = [...meanwhile, ...fresh.map((line) => row(line.dataset.run) ?? line)];
      if (known < 0) {
        body.replaceChildren();
        waiting.clear();
        document.querySelector("main .more")?.remove();
        table.parentElement.after(...now.querySelectorAll("main .more"));
        isGap = false;
      }
      putOnTop(top);
      offerFresh();
    }
    follow(ofList(), {
      open: (_, isAgain) => { if (isAgain) catchUp(); table.dataset.live = "open"; },
      rows: (event) => {
        const { lines, left_out } = JSON.parse(event.data);
        stale ||= left_out;
        show(lines, (line) => "fits" in line.dataset);
      },
    });
    // more has changed than was told: what is shown as running may have ended
    setInterval(() => {
      if (!stale || isIdle()) return;
      stale = false;
      load("shown", going());
    }, HEAL_MS);
    const ahead = Date.parse(table.dataset.now) - Date.now(); // of the server's clock
    setInterval(() => {
      if (document.hidden) return;
      for (const cell of body.querySelectorAll("td[data-began]")) cell.textContent = duration(Math.max(0, knownMs() + ahead - Date.parse(cell.dataset.began)));
    }, TICK_MS);
  }

  // a run that goes on
  const run = document.getElementById("run");
  if (!run || run.dataset.status !== "running") return;
  const began = Date.parse(run.dataset.accepted);
  const clock = setInterval(() => {
    const ms = knownMs() - began, took = document.getElementById("took");
    if (took) took.textContent = ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : duration(ms);
  }, 250);

  /** Its deadline moves while it waits for somebody. */
  function learn(found) {
    const { allowed, paused } = found.getElementById("run").dataset;
    Object.assign(run.dataset, { allowed, paused });
    document.dispatchEvent(new Event("hocket:facts"));
  }

  // what its steps have left burns down; those that changed are read again, all together
  const burning = () => document.querySelector("table[data-burning]");
  const ahead = burning() ? Date.parse(burning().dataset.burning) - Date.now() : 0;
  function burn() {
    const now = knownMs() + ahead, x = Math.min(1000, 1000 * (now - began) / Number(run.dataset.allowed));
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
    if (isIdle() || !changed) return;
    changed = false;
    const now = await page();
    if (run.dataset.status !== "running") return; // it ended meanwhile
    const found = now?.querySelector("table[data-burning]"), facts = now?.querySelectorAll("[data-fact]") ?? [];
    document.querySelectorAll("[data-fact]").forEach((one, i) => { if (facts[i]) one.replaceWith(facts[i]); }); // its time and its money
    if (now) learn(now);
    if (found && !burning()?.contains(document.activeElement)) burning()?.replaceWith(found);
  }, 2000);
  // lines that its handlers log come without a step's change, too
  const logs = () => document.getElementById("logs"), later = new URLSearchParams(location.search).has("after");
  const reader = setInterval(async () => {
    if (isIdle() || !logs() || later) return;
    const found = (await page())?.getElementById("logs");
    if (run.dataset.status === "running" && found && !logs()?.contains(document.activeElement)) logs()?.replaceWith(found);
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
    learn(ended);
  }
});
