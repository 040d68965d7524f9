// The editor of pipelines: the API checks what is typed, its schema says what fits at the cursor.
"use strict";
document.addEventListener("DOMContentLoaded", async () => {
  const text = document.getElementById("spec"), lines = document.getElementById("lines");
  const verdict = document.getElementById("verdict"), hints = document.getElementById("hints");
  const { data } = { data: document.body.dataset };
  const headers = "free" in data ? { "X-Hocket-Tenant": data.tenant } : {};
  let faulty = 0, timer = null, asked = 0;

  function number() {
    const count = text.value.split("\n").length;
    lines.replaceChildren(...Array.from({ length: count }, (_, i) => {
      const line = document.createElement("span");
      line.textContent = i + 1;
      if (i + 1 === faulty) line.className = "faulty";
      return line;
    }));
    lines.scrollTop = text.scrollTop;
  }
  /** The line of a field such as `nodes.answer.model`: each name is looked for below the one before. */
  function lineOf(field) {
    const rows = text.value.split("\n");
    let at = 0, found = 0;
    for (const name of field.split(/[.[\]]+/).filter(Boolean)) {
      const plain = name.replace(/[.*+?^${}()|\\]/g, "\\$&");
      const next = rows.findIndex((row, i) => i >= at && new RegExp(`(^|[\\s{,"'-])${plain}["']?\\s*:`).test(row));
      if (next >= 0) { found = next + 1; at = next; }
    }
    return found;
  }
  function tell(kind, ...parts) {
    const box = document.createElement("div");
    box.className = kind;
    for (const part of parts) { const line = document.createElement("p"); line.append(...hocket.quoted(part)); box.append(line); }
    verdict.replaceChildren(box);
  }
  async function post(path) {
    const kind = text.value.trimStart().startsWith("{") ? "application/json" : "application/yaml";
    const answer = await fetch(data.api + path, { method: "POST", headers: { "Content-Type": kind, ...headers }, body: text.value });
    return [answer.ok, await answer.json().catch(() => ({}))];
  }
  async function check() {
    const turn = ++asked;
    let ok, said;
    try { [ok, said] = await post("/pipelines/validate"); } catch { tell("error", "The server cannot be reached. What you typed is kept."); return; }
    if (turn !== asked) return;
    if (ok) { faulty = 0; tell("note", `Valid: ${said.nodes} node${said.nodes === 1 ? "" : "s"}.`, ...(said.warnings || [])); }
    else {
      const line = /line (\d+)/.exec(said.detail || "");
      faulty = line ? Number(line[1]) : said.field ? lineOf(said.field) : 0;
      tell("error", (faulty ? `Line ${faulty}: ` : "") + (said.detail || "It cannot be checked right now."), said.cure && !(said.detail || "").includes(said.cure) ? said.cure : "");
    }
    number();
  }
  const schema = await fetch(`${data.api}/schemas/pipeline`, { headers }).then((answer) => answer.ok ? answer.json() : {}).catch(() => ({}));
  const real = (part) => part?.$ref ? part.$ref.slice(2).split("/").reduce((at, name) => at?.[name], schema) : part;
  const open = (part) => { const whole = real(part) || {}; return [...(whole.anyOf || []), ...(whole.oneOf || [])].flatMap(open).concat(whole.properties || whole.additionalProperties || whole.const || whole.enum || whole.type ? [whole] : []); };
  /** The names above the cursor, by indentation, and the `type` of the node around it. */
  function place() {
    const before = text.value.slice(0, text.selectionStart).split("\n");
    const names = [];
    const last = before[before.length - 1];
    let depth = last.trim() ? last.search(/\S/) : last.length;
    for (let i = before.length - 2; i >= 0 && depth > 0; i--) {
      const row = /^(\s*)(?:- )?["']?([\w.-]+)["']?\s*:/.exec(before[i]);
      if (row && row[1].length < depth) { names.unshift(row[2]); depth = row[1].length; }
    }
    return names;
  }
  function offered() {
    const names = place();
    let parts = open(schema);
    for (const name of names) parts = parts.flatMap((part) => part.properties?.[name] ? open(part.properties[name]) : typeof part.additionalProperties === "object" ? open(part.additionalProperties) : []);
    const rows = text.value.slice(0, text.selectionStart).split("\n").length;
    const near = text.value.split("\n").slice(Math.max(0, rows - 12), rows + 12).map((row) => /^\s*["']?type["']?\s*:\s*["']?(\w+)/.exec(row)?.[1]).filter(Boolean);
    const typed = parts.filter((part) => near.includes(real(part.properties?.type)?.const));
    return [names, (typed.length ? typed : parts)];
  }
  function hint() {
    const [names, parts] = offered(), seen = new Map();
    for (const part of parts) for (const [name, field] of Object.entries(part.properties || {})) if (!seen.has(name)) seen.set(name, real(field) || field);
    document.getElementById("hints-title").textContent = names.length ? `In ${names.join(" › ")}` : "At the top";
    const known = new RegExp("^\\s*[\"']?[\\w.-]*$").exec(text.value.slice(0, text.selectionStart).split("\n").pop())?.[0].trim() || "";
    hints.replaceChildren(...[...seen].filter(([name]) => name.startsWith(known)).slice(0, 60).map(([name, field]) => {
      const item = document.createElement("li"), button = document.createElement("button"), about = document.createElement("span");
      button.type = "button"; button.className = "quiet mono"; button.textContent = name;
      about.className = "dim"; about.textContent = (field.description || "").replaceAll("`", "");
      button.addEventListener("click", () => {
        const at = text.selectionStart - known.length;
        text.setRangeText(`${name}: `, at, text.selectionStart, "end");
        text.focus(); text.dispatchEvent(new Event("input"));
      });
      item.append(button, about);
      return item;
    }));
  }
  text.addEventListener("input", () => { number(); hint(); clearTimeout(timer); timer = setTimeout(check, 350); });
  text.addEventListener("scroll", () => { lines.scrollTop = text.scrollTop; });
  for (const moved of ["click", "keyup"]) text.addEventListener(moved, hint);
  document.getElementById("apply")?.addEventListener("click", async () => {
    try {
      const [ok, said] = await post("/pipelines");
      if (ok) hocket.open(`/pipelines/${said.pipeline}?version=${said.version}`);
      else hocket.say(said.detail || "The pipeline was not applied.");
    } catch { hocket.say("The server cannot be reached. What you typed is kept."); }
  });
  number(); hint(); check();
});
