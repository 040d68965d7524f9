// Many runs at once: how many are meant before anything is done, and how far an operation is after it.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const LOOK_MS = 1000;
  const { acts, call, isIdle, open, part, tellIn } = hocket;

  // how far: asked again while an operation goes on and somebody looks
  const list = document.getElementById("bulk");
  async function look() {
    if (!isIdle() && !list.contains(document.activeElement.closest("button"))) {
      const text = await part(`/bulk${location.search.replace(/([?&])tenant=[^&]*&?/, "$1")}`);
      if (text !== null) list.innerHTML = text;
    }
    if (list.querySelector("[data-goes-on]")) setTimeout(look, LOOK_MS);
  }
  if (list?.querySelector("[data-goes-on]")) setTimeout(look, LOOK_MS);

  const form = document.getElementById("bulk-form");
  if (!form) return;
  const count = document.getElementById("bulk-count"), go = document.getElementById("bulk-go");
  const words = { cancel: ["Cancel", "running"], retry: ["Retry", "that ended without a whole result"] };
  let change = null;
  async function preview(action) {
    change = { action, filter: JSON.parse(form.dataset.filter), idempotency_key: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` };
    const [verb, which] = words[action];
    document.getElementById("bulk-title").textContent = `${verb} all runs that fit`;
    count.textContent = "Counting…"; go.disabled = true; go.textContent = verb;
    go.className = action === "cancel" ? "danger" : "primary";
    document.getElementById("all").open = false;
    document.getElementById("dialog-bulk").showModal();
    const said = await call("POST /bulk/preview", { action, filter: change.filter }, undefined, tellIn(form));
    if (!said) { count.textContent = "The runs could not be counted."; return; }
    const n = said.matching.toLocaleString("en");
    count.textContent = said.matching ? `${n} run${said.matching === 1 ? "" : "s"} ${which} fit these filters.` : `No run ${which} fits these filters.`;
    go.disabled = said.matching === 0; go.textContent = said.matching ? `${verb} ${n}` : verb;
    // runs that come meanwhile are not meant: nothing is done where that many more are
    change.at_most = Math.min(1_000_000, said.matching + Math.ceil(said.matching / 10) + 10);
  }
  acts.bulkCancel = () => preview("cancel");
  acts.bulkRetry = () => preview("retry");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    const said = await call("POST /bulk/operations", { ...change, reason: form.elements.reason.value }, undefined, tellIn(form));
    if (said) open("/bulk"); else go.disabled = false;
  });
});
