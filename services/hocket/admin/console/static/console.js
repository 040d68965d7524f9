// What every page does: theme, keyboard, dialogs, and requests to the API.
"use strict";
(() => {
  const LIMIT_MS = 30000;
  const root = document.documentElement;
  const themes = { get: () => { try { return localStorage.getItem("hocket-theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("hocket-theme", value); } catch { /* private window */ } } };
  if (themes.get()) root.dataset.theme = themes.get();

  /** A message with what it quotes in backticks as code. */
  function quoted(text) {
    const parts = text.split("`");
    return parts.length % 2 === 0 ? [text] : parts.map((part, i) => {
      if (i % 2 === 0) return part;
      const code = document.createElement("code");
      code.textContent = part;
      return code;
    });
  }
  const say = (text) => {
    const line = document.createElement("p");
    line.append(...quoted(text));
    document.getElementById("notice").append(line);
    setTimeout(() => line.remove(), 8000);
  };

  /** Milliseconds as the server says them: `38 ms`, `1.24 s`, `3 min 05 s`, `2 h 05 min`. */
  function duration(ms) {
    const two = (number) => String(number).padStart(2, "0");
    if (ms < 0) return `-${duration(-ms)}`;
    if (ms < 9.95) return `${ms.toFixed(1)} ms`;
    if (ms < 999.5) return `${ms.toFixed(0)} ms`;
    if (ms < 59995) return `${(ms / 1000).toFixed(2)} s`;
    const seconds = Math.round(ms / 1000), minutes = Math.round(ms / 60000), hours = Math.round(ms / 3600000);
    if (ms < 3599500) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
    return ms < 86370000 ? `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min` : `${Math.floor(hours / 24)} d ${two(hours % 24)} h`;
  }

  const tenant = () => "free" in document.body.dataset ? { "X-Hocket-Tenant": document.body.dataset.tenant } : {};
  /** The address of a page of the console; the tenant that was chosen is kept. */
  const address = (path) => {
    const chosen = new URL(location.href).searchParams.get("tenant");
    return document.body.dataset.root + path + (chosen ? `${path.includes("?") ? "&" : "?"}tenant=${encodeURIComponent(chosen)}` : "");
  };

  // what the page shows is kept up to date while the server answers whoever is signed in
  const away = { since: null, left: null, why: "", out: false, asks: false, closed: [] };
  /** Until when the page knows what goes on: now, or when it was cut off. */
  const knownMs = () => away.since ?? Date.now();
  /** Until when it was surely up to date: also until it was hidden, since when nothing was heard. */
  const heardMs = () => away.since ?? away.left ?? Date.now();
  /** Whether nothing is asked of the server: nobody looks, or who does is signed out. */
  const isIdle = () => document.hidden || away.out;
  function tellAway() {
    const line = document.getElementById("away");
    line.hidden = away.since === null;
    if (line.hidden) return;
    const link = document.createElement("a");
    link.textContent = "Sign in (new tab)"; link.target = "_blank"; // what was typed here is kept
    link.href = address(`/sign-in?back=${encodeURIComponent(location.pathname + location.search)}`);
    const text = `${away.why} Last update ${new Date(away.since).toISOString().slice(11, 19)} UTC.`;
    if (line.textContent.startsWith(text)) return; // it is read out once
    line.replaceChildren(text, ...(away.out ? [" ", link] : []));
  }
  /** Tell that the page is not kept up to date since then; null for since once it is again. */
  function cut(since, why = "No connection.") {
    if (away.out) return;
    Object.assign(away, { since, why });
    if (since === null) away.left = null;
    tellAway();
  }
  function signedOut() {
    if (away.out) return;
    const offered = document.querySelectorAll("main [data-open], main form[data-api] button, dialog form[data-api] button:not([data-close])");
    Object.assign(away, { since: heardMs(), why: "You are signed out.", out: true, closed: [...offered].filter((button) => !button.disabled) });
    tellAway();
    for (const button of away.closed) button.disabled = true;
    document.dispatchEvent(new Event("hocket:out"));
  }
  /** Go on if whoever was signed out has signed in again, in another tab. */
  async function comeBack() {
    if (!away.out || away.asks || document.hidden) return;
    away.asks = true;
    const now = await page();
    away.asks = false;
    if (!now) return;
    const who = (one) => `${one.body.dataset.tenant} ${one.querySelector("#account summary")?.title}`;
    if (who(now) !== who(document)) { location.reload(); return; } // somebody else has
    away.out = false;
    for (const button of away.closed) button.disabled = "over" in (button.form?.dataset ?? {});
    cut(null);
    document.dispatchEvent(new Event("hocket:in"));
  }
  document.addEventListener("visibilitychange", () => { if (document.hidden) away.left ??= Date.now(); else comeBack(); });
  addEventListener("focus", comeBack);
  /** An answer of the server within a time limit. */
  async function ask(url, options = {}) {
    const answer = await fetch(url, { signal: AbortSignal.timeout?.(LIMIT_MS), ...options });
    const isRefused = answer.status === 401 || (answer.redirected && new URL(answer.url).pathname === `${document.body.dataset.root}/sign-in`);
    if (isRefused && "tenant" in document.body.dataset) signedOut();
    return answer;
  }

  /** This page as the server makes it now; null where it does not. */
  async function page() {
    try {
      const answer = await ask(location.href, { headers: { Accept: "text/html" } });
      return answer.ok && !answer.redirected ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
    } catch { return null; }
  }

  /** A part of a page as the server made it, which escapes whatever was stored; null where there is none. */
  async function part(path) {
    try {
      const answer = await ask(address(path), { headers: { "X-Hocket-Part": "true" } });
      return answer.ok ? await answer.text() : null;
    } catch { return null; }
  }

  /** Tells what is wrong in a form itself: a notice would lie behind its dialog, and go away. */
  const tellIn = (form) => (text) => {
    let box = form.querySelector(".error[role=alert]");
    if (!box) {
      box = document.createElement("p");
      box.className = "error"; box.setAttribute("role", "alert");
      form.querySelector("p:has(> button:last-of-type)").before(box);
    }
    box.replaceChildren(...quoted(text));
  };

  /** Send a request to the API; the answer's JSON, or null after the error was told. */
  async function call(operation, body, base = document.body.dataset.api, tell = say) {
    const [method, path] = operation.split(" ");
    try {
      const answer = await ask(base + path, {
        method, headers: { "Content-Type": "application/json", ...tenant() }, body: JSON.stringify(body ?? {}),
      });
      const said = await answer.json().catch(() => ({}));
      if (answer.ok) return said;
      tell(said.detail || `The server answered ${answer.status}.`, said.code);
    } catch (error) {
      tell(error.name === "TimeoutError" ? `The server did not answer within ${LIMIT_MS / 1000} s. It may have done this all the same: look before you try again.` : "The server cannot be reached. What you typed is kept; try again.");
    }
    return null;
  }

  /** Close the form of an approval that is decided, and keep what was typed. Says how it was decided if that can be read. */
  async function decided(form) {
    if (form.dataset.over || form.dataset.sending) return;
    form.dataset.over = "true";
    for (const button of form.querySelectorAll("button")) button.disabled = true;
    const line = document.createElement("p");
    line.className = "note"; line.setAttribute("role", "status");
    line.textContent = "This is decided, or its time is up. Your answer was not sent.";
    form.append(line);
    const run = form.dataset.api.split("/")[2], step = form.elements.name.value.split("/").map(encodeURIComponent).join("/");
    const found = new DOMParser().parseFromString(await part(`/runs/${run}/steps/${step}`) ?? "", "text/html");
    const refused = found.querySelector(".error")?.lastChild.textContent.trim();
    let by = "";
    try { by = JSON.parse([...found.querySelectorAll("pre")].at(-1)?.textContent ?? "null")?.by; } catch { /* it is cut */ }
    if (refused || by) line.replaceChildren(...quoted(`${refused || `Approved by ${by}.`} Your answer was not sent.`));
  }

  /** JSON whose numbers keep all of their digits, which those of the browser would lose; an error where it cannot. */
  const parse = (text) => JSON.parse(text, (_, value, context) => {
    if (typeof value !== "number") return value;
    if (context?.source && JSON.rawJSON) return JSON.rawJSON(context.source);
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) throw new Error(`${value} has more digits than this browser keeps`);
    return value;
  });

  /** A form's fields as a body; `a.b` is `b` in `a`, and of buttons the one that was pressed counts. */
  function bodyOf(form, pressed = null) {
    const body = {};
    for (const field of form.elements) {
      if (!field.name || field.value === "" || (field.type === "submit" && field !== pressed)) continue;
      if ("unchanged" in field.dataset && field.value === field.defaultValue) continue;
      const names = field.name.split("."), last = names.pop();
      const place = names.reduce((at, name) => at[name] ??= {}, body);
      place[last] = "json" in field.dataset ? parse(field.value) : field.value;
    }
    return body;
  }

  /** Open a dialog; a button of a row says what its form is about. */
  function show(button) {
    const dialog = document.getElementById(`dialog-${button.dataset.open}`), form = dialog.querySelector("form");
    form.querySelector(".error[role=alert]")?.remove();
    if (button.dataset.api) form.dataset.api = button.dataset.api;
    if (button.dataset.replica) {
      form.elements.replica.value = button.dataset.replica;
      dialog.querySelector("[data-shown=replica]").textContent = button.dataset.replica;
    }
    dialog.showModal();
  }
  const open = (path) => { location.href = address(path); };

  async function send(form, pressed) {
    if (form.dataset.sending) return;
    const tellAnswer = (text, code) => { delete form.dataset.sending; if (code === "approval_decided") decided(form); else say(text); };
    const tell = form.matches(".answer") ? tellAnswer : form.closest("dialog") ? tellIn(form) : say;
    let body;
    try { body = bodyOf(form, pressed); } catch (error) { tell(`This is not valid JSON: ${error.message}`); return; }
    form.dataset.sending = "true"; // until the page is loaded again: its own answer is not one from elsewhere
    const said = await call(form.dataset.api, body, undefined, tell);
    if (!said || "follow" in form.dataset) delete form.dataset.sending;
    if (!said) return;
    if ("follow" in form.dataset && said.run_id) open(`/runs/${said.run_id}`);
    else { form.closest("dialog")?.close(); say("Sent."); setTimeout(() => location.reload(), 700); }
  }

  const picked = () => [...document.querySelectorAll("[data-pick]:checked")].map((box) => box.value);
  document.addEventListener("change", (event) => {
    if (!("pick" in event.target.dataset)) return;
    const ids = picked();
    document.getElementById("picked").hidden = ids.length === 0;
    document.getElementById("picked-count").textContent = ids.length;
    document.getElementById("compare").disabled = ids.length !== 2;
  });

  const acts = {
    out: async () => {
      if (await call("POST /sign-out", {}, document.body.dataset.root)) open("/sign-in");
    },
    "out-everywhere": async () => {
      if (await call("POST /sign-out-everywhere", {}, document.body.dataset.root)) open("/sign-in");
    },
    retry: async () => {
      const said = await call(`POST /runs/${document.getElementById("run").dataset.run}/retry`);
      if (said) open(`/runs/${said.run_id}`);
    },
    compare: () => { const [a, b] = picked(); open(`/compare?a=${a}&b=${b}`); },
    revoke: async (button) => {
      if (!button.dataset.sure) { button.dataset.sure = "true"; button.textContent = "Revoke permanently?"; return; }
      if (await call(`DELETE /keys/${button.dataset.key}`)) { say("Revoked."); setTimeout(() => location.reload(), 700); }
    },
    arm: async (button) => { if (await call(`POST ${button.dataset.path}`, JSON.parse(button.dataset.body ?? "{}"))) { say("Done."); setTimeout(() => location.reload(), 700); } },
    copy: async (button) => {
      try { await navigator.clipboard.writeText(button.dataset.text); say("Copied."); } catch { // only over https
        getSelection().selectAllChildren(button.previousElementSibling); say("Press Ctrl+C to copy it.");
      }
    },
    redrive: async (button) => {
      const said = await call(`POST /dead-letters/${button.dataset.seq}/redrive`);
      if (said) { say("Published again."); button.closest("tr").remove(); }
    },
  };

  // views: filters under a name, kept by this browser
  const views = { get: () => { try { return JSON.parse(localStorage.getItem("hocket-views")) || {}; } catch { return {}; } },
    set: (all) => { try { localStorage.setItem("hocket-views", JSON.stringify(all)); } catch { say("Private windows keep nothing."); } } };
  function listViews() {
    const list = document.getElementById("view-list");
    if (!list) return;
    const all = Object.entries(views.get());
    list.replaceChildren(...all.map(([name, query]) => {
      const item = document.createElement("li"), link = document.createElement("a"), drop = document.createElement("button");
      link.textContent = name; link.href = location.pathname + query;
      drop.type = "button"; drop.className = "quiet"; drop.textContent = "×"; drop.setAttribute("aria-label", `Forget ${name}`);
      drop.addEventListener("click", () => { const rest = views.get(); delete rest[name]; views.set(rest); listViews(); });
      item.append(link, drop);
      return item;
    }));
    document.getElementById("no-view").hidden = all.length > 0;
  }
  acts.saveView = () => document.getElementById("dialog-view").showModal();
  document.addEventListener("DOMContentLoaded", () => {
    listViews();
    // on a narrow screen, the page's own link is in sight
    for (const one of document.querySelectorAll("nav [aria-current=page]")) {
      const nav = one.parentElement, at = one.getBoundingClientRect(), whole = nav.getBoundingClientRect();
      nav.scrollLeft += at.left - whole.left - (whole.width - at.width) / 2;
    }
    const menu = document.getElementById("tenants");
    menu?.addEventListener("toggle", async () => {
      if (!menu.open || menu.dataset.loaded) return;
      const names = await part(menu.dataset.src);
      if (names !== null) { menu.querySelector(".menu-body").innerHTML = names; menu.dataset.loaded = "true"; }
    });
  });

  document.addEventListener("submit", async (event) => {
    if (event.target.id === "name-view") {
      event.preventDefault();
      const kept = new URLSearchParams([...new FormData(document.getElementById("filters"))].filter(([, value]) => value !== ""));
      views.set({ ...views.get(), [event.target.elements.name.value]: `?${kept}` });
      event.target.reset(); event.target.closest("dialog").close(); listViews(); say("Saved in this browser.");
    }
    if (event.target.dataset.console) {
      event.preventDefault();
      const said = await call(event.target.dataset.console, bodyOf(event.target), document.body.dataset.root, tellIn(event.target));
      if (said) location.href = said.back || address("/runs");
    }
    if (event.target.dataset.api) { event.preventDefault(); send(event.target, event.submitter); }
    // what a form creates each time it is sent: once, even if its button is pressed twice
    if ("once" in event.target.dataset) {
      if (event.target.dataset.sent) event.preventDefault();
      event.target.dataset.sent = "true";
      setTimeout(() => { delete event.target.dataset.sent; }, 5000);
    }
  });
  // a menu closes when something else is clicked, and by Escape
  const openMenus = () => document.querySelectorAll("details.menu[open]");
  document.addEventListener("click", (event) => { for (const one of openMenus()) if (!one.contains(event.target)) one.open = false; });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const one of openMenus()) { one.open = false; if (one.contains(document.activeElement)) one.firstElementChild.focus(); }
  });
  // a time says what it is where the reader is, and how long ago
  document.addEventListener("pointerover", (event) => {
    const time = event.target.closest?.("time[datetime]");
    if (!time) return;
    const at = new Date(time.dateTime), ms = Date.now() - at;
    const there = at.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "long" });
    time.title = `${there}, ${ms < 0 ? `in ${duration(-ms)}` : `${duration(ms)} ago`}`;
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.open) show(button);
    else if ("close" in button.dataset) button.closest("dialog").close();
    else if (button.dataset.act) acts[button.dataset.act](button);
    else if (button.id === "keys") document.getElementById("help").showModal();
    else if (button.id === "theme") {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      themes.set(root.dataset.theme);
      document.dispatchEvent(new Event("hocket:theme"));
    }
  });

  let chosen = -1, chord = "";
  function choose(step) {
    const rows = [...document.querySelectorAll("[data-rows] tbody tr")];
    if (!rows.length) return;
    rows[chosen]?.classList.remove("chosen");
    chosen = Math.max(0, Math.min(rows.length - 1, chosen + step));
    rows[chosen].classList.add("chosen");
    rows[chosen].scrollIntoView({ block: "nearest" });
    rows[chosen].querySelector("a")?.focus({ preventScroll: true });
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select, dialog")) return;
    const go = { r: "/runs", a: "/approvals", f: "/flow", c: "/schedules", w: "/webhooks", p: "/pipelines", m: "/money", o: "/models", l: "/playground", s: "/system" };
    if (chord === "g" && go[event.key]) { chord = ""; open(go[event.key]); return; }
    chord = event.key === "g" ? "g" : "";
    if (event.key === "/") { event.preventDefault(); document.getElementById("find").focus(); }
    else if (event.key === "?") document.getElementById("help").showModal();
    else if (event.key === "x") { const box = document.querySelector("tr.chosen [data-pick]"); box?.click(); }
    else if (event.key === "j") choose(1);
    else if (event.key === "k") choose(-1);
  });

  // browsers fill in again what was chosen when the page was left: it shows what its address asks for
  addEventListener("pageshow", (event) => {
    if (!event.persisted && performance.getEntriesByType("navigation")[0]?.type !== "back_forward") return;
    for (const form of document.querySelectorAll("form.filters")) form.reset();
  });

  window.hocket = { say, tellIn, quoted, call, ask, open, address, acts, part, page, duration, parse, knownMs, heardMs, isIdle, cut, decided };
})();
