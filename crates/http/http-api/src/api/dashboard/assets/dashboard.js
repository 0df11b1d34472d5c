// Refreshes the sections that the server has rendered, sorts and filters tables, and sends forms.
"use strict";

const live = document.getElementById("live");
const again = document.getElementById("again");
const query = document.body.dataset.span === "hour" ? "?span=hour" : "";
// By table: column, direction and filter that the reader chose.
const chosen = new Map();
let paused = false;

function say(text) {
  live.textContent = text;
}

// Makes `old` like `now`, changing only what differs: focus, selection and scroll positions stay.
function morph(old, now) {
  if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName || keyOf(old) !== keyOf(now)) {
    old.replaceWith(now);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== now.nodeValue) old.nodeValue = now.nodeValue;
    return;
  }
  // What the reader is filling in stays as it is.
  if (old.nodeName === "FORM" && old.contains(document.activeElement)) return;
  for (const { name, value } of [...now.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!now.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  const keyed = new Map();
  for (const child of old.children) if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  let at = old.firstChild;
  for (const child of [...now.childNodes]) {
    const same = child.dataset && child.dataset.key !== undefined ? keyed.get(child.dataset.key) : undefined;
    if (same && same !== at) old.insertBefore(same, at);
    const next = same || at;
    if (!next) {
      old.append(child);
      continue;
    }
    at = next.nextSibling;
    morph(next, child);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function keyOf(node) {
  return node.dataset ? node.dataset.key : undefined;
}

// Adds sort buttons, sorts and filters as the reader chose. Works on tables that are not in the page yet.
function arrange(root) {
  for (const table of root.querySelectorAll("table")) {
    const choice = chosen.get(table.id) || {};
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((cell, index) => {
      if (body.rows.length < 2 && choice.column !== index) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...cell.childNodes);
      cell.append(button);
      if (choice.column === index) cell.setAttribute("aria-sort", choice.down ? "descending" : "ascending");
    });
    if (choice.column !== undefined) {
      const value = (row) => {
        const cell = row.cells[choice.column];
        return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
      };
      const order = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
        const sign = choice.down ? -1 : 1;
        return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
      };
      body.append(...[...body.rows].sort(order));
    }
    if (choice.words) {
      const words = choice.words.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(words);
    }
  }
}

// Fields that filter the longer tables; they stand before the tables, in the sections' own markup.
function addFilters(root) {
  for (const table of root.querySelectorAll("table")) {
    if (table.tBodies[0].rows.length < 8 && !(chosen.get(table.id) || {}).words) continue;
    const label = document.createElement("label");
    label.className = "filter";
    label.dataset.key = "filter-" + table.id;
    const field = document.createElement("input");
    field.type = "search";
    field.dataset.table = table.id;
    label.append("Filter ", field);
    table.parentElement.before(label);
  }
}

function parsed(html) {
  const body = document.createElement("div");
  body.className = "body";
  body.append(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
  arrange(body);
  addFilters(body);
  return body;
}

// What a section looked like before it was arranged.
const sources = new Map();

function show(id) {
  const section = document.getElementById(id);
  const body = section && section.querySelector(".body");
  if (body) morph(body, parsed(sources.get(id)));
}

function update(change) {
  const ids = [...document.querySelectorAll("main > section")].map((section) => section.id).filter((id) => id !== "explain");
  if (change.order.join() !== ids.join()) {
    location.reload();
    return;
  }
  for (const [id, html] of Object.entries(change.sections)) {
    sources.set(id, html);
    show(id);
  }
  const marks = change.critical ? "■ " + change.critical + " " : change.warnings ? "▲ " + change.warnings + " " : "";
  document.title = marks + "Tidegate";
  say("live, " + new Date().toISOString().slice(11, 19) + " UTC");
}

let stream = null;
let timer = 0;

function poll() {
  timer = setTimeout(async () => {
    try {
      const answer = await fetch("data" + query, { cache: "no-store" });
      if (answer.ok) update(await answer.json());
      else say("not refreshed: status " + answer.status);
    } catch {
      say("the server does not answer");
    }
    if (!paused && !document.hidden) poll();
  }, 5000);
}

function begin() {
  stop();
  if (paused || document.hidden) return;
  if (!window.EventSource) {
    poll();
    return;
  }
  stream = new EventSource("events" + query);
  stream.addEventListener("update", (event) => update(JSON.parse(event.data)));
  stream.addEventListener("error", () => {
    if (stream && stream.readyState === EventSource.CLOSED) {
      // Refused, as by too many streams: asks now and then.
      stream = null;
      poll();
    } else {
      say("connecting");
    }
  });
}

function stop() {
  if (stream) stream.close();
  stream = null;
  clearTimeout(timer);
}

document.addEventListener("visibilitychange", begin);

const button = document.createElement("button");
button.type = "button";
button.textContent = "Pause";
button.addEventListener("click", () => {
  paused = !paused;
  button.textContent = paused ? "Continue" : "Pause";
  button.setAttribute("aria-pressed", String(paused));
  if (paused) say("paused");
  begin();
});
again.replaceWith(button);
live.removeAttribute("role");

document.addEventListener("click", (event) => {
  const cell = event.target.closest && event.target.closest("thead th");
  if (!cell || !event.target.closest("button")) return;
  const table = cell.closest("table");
  const old = chosen.get(table.id) || {};
  const down = old.column === cell.cellIndex ? !old.down : cell.classList.contains("n");
  chosen.set(table.id, { ...old, column: cell.cellIndex, down });
  show(cell.closest("section").id);
});

document.addEventListener("input", (event) => {
  const id = event.target.dataset.table;
  if (!id) return;
  chosen.set(id, { ...(chosen.get(id) || {}), words: event.target.value });
  show(event.target.closest("section").id);
});

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form));
  const message = document.querySelector(".message");
  message.hidden = false;
  try {
    const headers = { "Accept": "application/json", "X-Tidegate-Token": fields.get("token") };
    const answer = await fetch("./", { method: "POST", headers, body: fields });
    const result = await answer.json();
    message.textContent = result.done ? "Done: " + result.done : result.error;
  } catch {
    message.textContent = "The change could not be sent.";
  }
  message.scrollIntoView({ block: "nearest" });
  if (document.activeElement && form.contains(document.activeElement)) document.activeElement.blur();
  begin();
});

for (const body of document.querySelectorAll("main > section > .body")) {
  sources.set(body.parentElement.id, body.innerHTML);
  show(body.parentElement.id);
}
begin();
