// What every page does: theme, keyboard, dialogs, and requests to the API.
"use strict";
(() => {
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

  /** A part of a page as the server made it, which escapes whatever was stored; null where there is none. */
  async function part(path) {
    try {
      const answer = await fetch(address(path), { headers: { "X-Hocket-Part": "true" } });
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
      const answer = await fetch(base + path, {
        method, headers: { "Content-Type": "application/json", ...tenant() }, body: JSON.stringify(body ?? {}),
      });
      const said = await answer.json().catch(() => ({}));
      if (answer.ok) return said;
      tell(said.detail || `The server answered ${answer.status}.`);
    } catch {
      tell("The server cannot be reached. What you typed is kept; try again.");
    }
    return null;
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
    const tell = form.closest("dialog") ? tellIn(form) : say;
    let body;
    try { body = bodyOf(form, pressed); } catch (error) { tell(`This is not valid JSON: ${error.message}`); return; }
    const said = await call(form.dataset.api, body, undefined, tell);
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

  window.hocket = { say, tellIn, quoted, call, open, address, acts, part, duration, parse };
})();
