// The playground: a call whose answer is shown as it comes. What a model says is text, never markup.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("playground");
  if (!form) return;
  const { address, say } = hocket, place = (id) => document.getElementById(id);
  let going = null;

  function show(name, said) {
    if (name === "piece") { place("answer").append(said.text); place("progress").textContent = "comes…"; }
    if (name === "reply") { place("answer").textContent = said.text; place("answer").hidden = !said.text; place("reply").innerHTML = said.html; place("progress").textContent = ""; place("decision").textContent = "The ledger books the call…"; }
    if (name === "decision") place("decision").innerHTML = said.html;
  }
  function take(block) {
    const lines = block.split("\n"), of = (field) => lines.find((line) => line.startsWith(field))?.slice(field.length);
    const name = of("event: ");
    if (name) show(name, JSON.parse(of("data: ")));
  }
  async function listen(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      blocks.forEach(take);
    }
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (going) return;
    const body = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
    for (const name of ["max_tokens", "temperature", "timeout_s"]) if (name in body) body[name] = Number(body[name]);
    going = new AbortController();
    place("idle").hidden = true; place("outcome").hidden = false; place("answer").hidden = false;
    for (const id of ["answer", "reply", "decision"]) place(id).replaceChildren();
    place("progress").textContent = "waiting for the model…";
    place("outcome").scrollIntoView({ block: "nearest" });
    place("go").disabled = true; place("stop").hidden = false;
    try {
      const headers = { "Content-Type": "application/json" };
      if ("free" in document.body.dataset) headers["X-Hocket-Tenant"] = document.body.dataset.tenant;
      const answer = await fetch(address("/playground/calls"), { method: "POST", headers, body: JSON.stringify(body), signal: going.signal });
      if (answer.ok) await listen(answer);
      else { const said = await answer.json().catch(() => ({})); say(said.detail || `The server answered ${answer.status}.`); place("progress").textContent = "not called"; }
    } catch (error) {
      place("progress").textContent = error.name === "AbortError" ? "stopped; what it used is booked" : "broken off";
      if (error.name !== "AbortError") say("The server cannot be reached. What you typed is kept; try again.");
    } finally { going = null; place("go").disabled = false; place("stop").hidden = true; }
  });
  place("stop").addEventListener("click", () => going?.abort());
  form.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });
  form.elements.model.addEventListener("change", () => { const at = new URL(location.href); at.searchParams.set("model", form.elements.model.value); history.replaceState(null, "", at); });
});
