// An input form made from a schema: it writes the JSON below it, and reads what is typed there.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("input-form");
  if (!place) return;
  const { parse } = hocket, schema = parse(place.dataset.schema), json = document.querySelector("#dialog-try textarea");
  const required = new Set(schema.required || []);
  const value = () => { try { return parse(json.value); } catch { return null; } };
  const shown = (one) => one?.rawJSON ?? String(one), number = (text) => { try { return parse(text); } catch { return Number(text); } };
  const set = (name, said) => { const all = value() ?? {}; if (said === undefined) delete all[name]; else all[name] = said; json.value = JSON.stringify(all, null, 2); };
  for (const [name, field] of Object.entries(schema.properties || {})) {
    const label = document.createElement("label"), kind = Array.isArray(field.type) ? field.type[0] : field.type;
    label.textContent = name + (required.has(name) ? " *" : "");
    let input;
    if (Array.isArray(field.enum)) {
      input = document.createElement("select");
      for (const one of field.enum) { const option = document.createElement("option"); option.textContent = shown(one); input.append(option); }
      input.addEventListener("change", () => set(name, field.enum[input.selectedIndex]));
    } else if (kind === "boolean") {
      input = document.createElement("input"); input.type = "checkbox";
      input.addEventListener("change", () => set(name, input.checked));
    } else if (kind === "integer" || kind === "number") {
      input = document.createElement("input"); input.type = "number"; input.step = kind === "integer" ? 1 : "any";
      input.addEventListener("input", () => set(name, input.value === "" ? undefined : number(input.value)));
    } else if (kind === "string") {
      input = document.createElement("textarea"); input.rows = 2; input.className = "prose";
      input.addEventListener("input", () => set(name, input.value));
    } else continue; // lists and objects: in the JSON
    const now = value()?.[name];
    if (kind === "boolean") input.checked = Boolean(now); else if (now !== undefined && now !== null) input.value = shown(now);
    if (field.description) { const about = document.createElement("span"); about.className = "dim"; about.textContent = field.description; label.append(about); }
    label.append(input); place.append(label);
    json.addEventListener("input", () => { const all = value(); if (all && name in all) { if (kind === "boolean") input.checked = Boolean(all[name]); else input.value = shown(all[name]); } });
  }
});
