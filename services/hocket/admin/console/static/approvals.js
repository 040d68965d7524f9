// What waits for a person: approvals that are decided elsewhere go, new ones come below. Nothing jumps.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const LOOK_MS = 5000, MANY = 50, MANY_MS = 15000; // a page of many is larger
  const place = document.getElementById("approvals"), { ask, isIdle, cut, decided } = hocket;
  const cards = (root) => new Map([...root.querySelectorAll("[data-approval]")].map((card) => [card.dataset.approval, card]));
  let heard = Date.now(), looking = false;

  /** The page as the server makes it now; null where it does not. */
  async function page() {
    try {
      const answer = await ask(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok && !answer.redirected) return new DOMParser().parseFromString(await answer.text(), "text/html");
      cut(heard, `The server answered ${answer.status}.`);
    } catch { cut(heard); }
    return null;
  }
  async function look() {
    if (isIdle() || looking) return;
    looking = true;
    const began = Date.now(), now = await page(), found = now?.getElementById("approvals");
    looking = false;
    if (!found) return;
    heard = began; cut(null);
    const fresh = cards(found), old = cards(place);
    for (const [key, card] of old) {
      if (fresh.has(key)) continue;
      const form = card.querySelector("form.answer");
      if (form && (form.dataset.over || form.dataset.sending || form.contains(document.activeElement) || form.elements["payload.note"].value)) decided(form);
      else card.remove();
    }
    for (const [key, card] of fresh) if (!old.has(key)) place.append(card);
    for (const one of place.querySelectorAll(":scope > :not([data-approval])")) one.remove();
    if (!fresh.size) place.append(...[...found.children]);
    for (const name of ["h1", ".more", "nav a[aria-current]"]) {
      const one = document.querySelector(name), other = now.querySelector(name);
      if (one && other) { if (one.innerHTML !== other.innerHTML) one.innerHTML = other.innerHTML; } else if (one) one.remove(); else if (other) place.after(other);
    }
  }
  (function again() {
    setTimeout(async () => { await look(); again(); }, cards(place).size > MANY ? MANY_MS : LOOK_MS);
  })();
  document.addEventListener("visibilitychange", look);
  document.addEventListener("hocket:in", look);
});
