// The page of the service. Everything that comes from prompts and answers goes through textContent; nothing makes HTML of text.
"use strict";

const $ = (id) => document.getElementById(id);
const REFRESH = 5000; // ms
let key = sessionStorage.getItem("semcache-key");
let overview = null;
let wanted = "all";
let next = null;
let shown = "";

function el(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [property, value] of Object.entries(properties)) {
    if (property === "class") made.className = value;
    else if (property.startsWith("on")) made.addEventListener(property.slice(2), value);
    else made.setAttribute(property, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : document.createTextNode(String(child))));
  return made;
}

async function api(method, path, body) {
  const headers = {};
  if (key) headers.authorization = "Bearer " + key;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(path, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", credentials: "omit",
  });
  const found = await answer.json();
  if (answer.ok) return found;
  const error = new Error(found.error ? found.error.message : "status " + answer.status);
  error.status = answer.status;
  throw error;
}

function say(text, bad = false) {
  $("state").textContent = text;
  $("state").className = bad ? "bad" : "";
}

async function attempt(work, done) {
  try {
    const found = await work();
    if (done) say(typeof done === "function" ? done(found) : done);
    return found;
  } catch (error) {
    if (error.status === 401 || error.status === 403) ask();
    say(error.message, true);
    return null;
  }
}

function ask() {
  const first = $("login").hidden;
  $("login").hidden = false;
  $("content").hidden = true;
  if (first) $("key").focus();
}

const percent = (share) => share === null ? "–" : (100 * share).toFixed(1) + " %";
const number = (value) => value === null ? "–" : Intl.NumberFormat("en").format(value);
const ms = (value) => value === null ? "–" : "≤ " + number(value) + " ms";
const money = (value) => "$" + value.toFixed(value < 1 ? 4 : 2);

function ago(seconds) {
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= length) return Math.round(seconds / length) + " " + unit;
  }
  return Math.max(0, Math.round(seconds)) + " s";
}

const SVG = "http://www.w3.org/2000/svg";
const THUMB = "M2 10h3v9H2z M7 10l4-8c1.7 0 2.5 1 2.2 2.7L12.6 8H18c1.3 0 2 1 1.8 2.2l-1.3 7c-.2 1.1-1 1.8-2 1.8H9l-2-1z";

function thumb(down = false) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 22 22");
  svg.setAttribute("class", down ? "thumb down" : "thumb");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", THUMB);
  svg.append(path);
  return svg;
}

function tile(name, value, note) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, note)));
}

function drawNumbers() {
  const { total, priced } = overview;
  const judged = total.judged
    ? `95 %: ${percent(total.wrong_low)} to ${percent(total.wrong_high)}, of ${number(total.judged)} judged`
    : "nobody has judged a serving yet";
  $("tiles").replaceChildren(
    tile("Hit rate", percent(total.hit_rate), `${number(total.exact)} exact, ${number(total.semantic)} semantic`),
    tile("Wrong, of those judged", percent(total.wrong_share), judged),
    tile("Hits answer in", ms(total.hit_p50_ms), `p95 ${ms(total.hit_p95_ms)}`),
    tile("Others answer in", ms(total.other_p50_ms), `p95 ${ms(total.other_p95_ms)}`),
    tile("Tokens saved", number(total.tokens_saved), priced ? money(total.usd_saved) : "no prices configured"),
    tile("Calls", number(total.requests), `${number(total.waited)} shared one call, ${number(total.error)} with errors`),
  );
  const series = overview.series;
  chart("chart-rate", [series.map((at) => at.hit_rate === null ? null : 100 * at.hit_rate)], 100);
  chart("chart-ms", [series.map((at) => at.hit_p50_ms), series.map((at) => at.other_p50_ms)]);
  let sum = 0;
  chart("chart-saved", [series.map((at) => (sum += priced ? at.usd_saved : at.tokens_saved))], undefined, true);
  $("saved-name").textContent = priced ? "Money saved, $, added up" : "Tokens saved, added up";
}

function chart(id, lines, most, filled = false) {
  const svg = $(id);
  const [width, height, left, bottom] = [320, 110, 40, 16];
  const part = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const values = lines.flat().filter((value) => value !== null);
  const top = most ?? Math.max(1e-9, ...values);
  const count = Math.max(...lines.map((line) => line.length));
  const x = (at) => left + (count < 2 ? 0.5 : at / (count - 1)) * (width - left - 6);
  const y = (value) => 6 + (1 - value / top) * (height - bottom - 6);
  const label = (value) => value >= 1000 ? Intl.NumberFormat("en", { notation: "compact" }).format(value) : String(+value.toPrecision(2));
  const drawn = [
    part("line", { class: "axis", x1: left, x2: width, y1: y(0), y2: y(0) }),
    part("text", { x: left - 5, y: 13, "text-anchor": "end" }, values.length ? label(top) : ""),
    part("text", { x: left - 5, y: y(0), "text-anchor": "end" }, "0"),
  ];
  const time = (at) => new Date(1000 * overview.series[at].start).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  if (count) {
    drawn.push(part("text", { x: left, y: height - 2 }, time(0)));
    if (count > 1) drawn.push(part("text", { x: width - 4, y: height - 2, "text-anchor": "end" }, time(count - 1)));
  }
  lines.forEach((line, which) => {
    const points = line.map((value, at) => value === null ? null : [x(at), y(value)]).filter(Boolean);
    if (points.length === 1) drawn.push(part("circle", { class: "dot", cx: points[0][0], cy: points[0][1], r: 3 }));
    if (points.length < 2) return;
    const path = points.map((point) => point.map((value) => value.toFixed(1)).join(",")).join(" L");
    if (filled) drawn.push(part("path", { class: "area", d: `M${points[0][0]},${y(0)} L${path} L${points.at(-1)[0]},${y(0)}Z` }));
    drawn.push(part("path", { class: which ? "line second" : "line", d: "M" + path }));
  });
  svg.replaceChildren(...drawn);
  svg.setAttribute("aria-label", values.length ? `latest ${label(values.at(-1))}, most ${label(Math.max(...values))}` : "no data yet");
}

function text(label, value) {
  return el("div", {}, el("div", { class: "label" }, label), el("p", { class: "text" }, value));
}

function empty(words) {
  return el("li", { class: "empty" }, words);
}

const now = () => Date.now() / 1000;

function drawDecisions() {
  const kinds = ["all", "semantic", "exact", "miss", "bypass", "error"];
  $("filters").replaceChildren(...kinds.map((kind) => el("button", {
    type: "button", "aria-pressed": String(kind === wanted), onclick: () => { wanted = kind; drawDecisions(); $("filters").children[kinds.indexOf(kind)].focus(); },
  }, kind)));
  const rows = overview.decisions.filter((row) => wanted === "all" || row.match === wanted || row.status === wanted);
  $("decision-list").replaceChildren(...(rows.length ? rows.map(decision) : [empty("No decisions yet.")]));
}

function decision(row) {
  const near = row.stored_prompt !== null && row.match !== "exact";
  const buttons = row.lookup_id ? [
    el("button", { type: "button", "aria-label": "right answer", onclick: () => judge({ lookup_id: row.lookup_id }, 1) }, thumb()),
    el("button", { type: "button", "aria-label": "wrong answer", onclick: () => judge({ lookup_id: row.lookup_id }, -1) }, thumb(true)),
  ] : [];
  if (row.entry_id) buttons.push(el("button", { type: "button", onclick: () => openEntry(row.entry_id) }, "Entry"));
  return el("li", {},
    el("div", { class: "head" },
      el("span", { class: "status " + row.status }, row.match ? `${row.match} hit` : row.status),
      row.similarity === null ? null : el("span", {}, `similarity ${row.similarity.toFixed(3)}`),
      row.reason ? el("span", {}, row.reason, row.detail ? `: ${row.detail}` : "") : null,
      el("span", {}, row.model || "no model"), el("span", {}, row.endpoint), el("span", {}, `${row.ms.toFixed(1)} ms`),
      el("time", { datetime: new Date(1000 * row.at).toISOString() }, ago(now() - row.at) + " ago"),
      overview.tenant === null ? el("span", {}, row.tenant ? `tenant ${row.tenant}` : "no tenant") : null),
    el("div", { class: near ? "pair" : "pair one" }, text("Asked", row.prompt),
      near ? text(row.status === "hit" ? "Answered as" : "Closest stored", row.stored_prompt) : null),
    el("div", { class: "row" }, ...buttons));
}

function drawHot() {
  const most = overview.hot.length ? overview.hot[0].hits : 1;
  $("hot-list").replaceChildren(...(overview.hot.length ? overview.hot.map((row) => el("li", {},
    el("meter", { max: most, value: row.hits, "aria-label": "hits" }), ` ${number(row.hits)} × `, row.prompt)) : [empty("No hits yet.")]));
}

async function judge(target, verdict) {
  await attempt(() => api("POST", "/v1/feedback", { ...target, verdict }), (said) => `${verdict > 0 ? "right" : "wrong"}: ${said.action}`);
  await refresh();
}

const pathOf = (entryId) => "/v1/cache/entries/" + encodeURIComponent(entryId);

async function openEntry(entryId) {
  const entry = await attempt(() => api("GET", pathOf(entryId)));
  if (entry === null) return;
  const verdicts = overview ? overview.verdicts.filter((row) => row.entry_id === entryId) : [];
  const act = (name, work, done, kind = "") => el("button", { type: "button", class: kind, onclick: async () => {
    if (await attempt(work, done) === null) return;
    await Promise.all([refresh(), drawWithdrawn(), search()]);
    await openEntry(entryId);
  } }, ...[name].flat());
  const facts = {
    Model: entry.model || "–", Version: entry.version || "–", Tenant: entry.tenant || "–", State: entry.state,
    Revision: entry.revision, Age: ago(entry.age), "Lives for": entry.ttl_left === null ? "ever" : ago(entry.ttl_left),
    Confidence: entry.confidence ?? "–", "Refused texts": entry.blocked,
    Judged: entry.observations.length ? entry.observations.map(([s, right]) => `${right ? "right" : "wrong"} at ${s.toFixed(3)}`).join(", ") : "–",
    Verdicts: verdicts.length ? verdicts.map((row) => `${row.verdict > 0 ? "right" : row.verdict < 0 ? "wrong" : "neither"} ${row.principal} (${row.action})${row.comment ? ": " + row.comment : ""}`).join("; ") : "none lately",
  };
  const dialog = $("entry");
  dialog.replaceChildren(
    el("h2", { id: "entry-title" }, "Entry"), el("p", {}, el("code", {}, entry.entry_id)),
    el("p", {}, ...(entry.tags.length ? entry.tags.flatMap((tag) => [el("span", { class: "tag" }, tag), " "]) : [el("span", { class: "quiet" }, "no tags")])),
    text("Prompt", entry.prompt), text("Answer", entry.text),
    el("table", {}, el("tbody", {}, ...Object.entries(facts).map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value))))),
    el("div", { class: "row" },
      act([thumb(), " Right"], () => api("POST", "/v1/feedback", { entry_id: entryId, verdict: 1 }), (said) => "right: " + said.action),
      act([thumb(true), " Wrong"], () => api("POST", "/v1/feedback", { entry_id: entryId, verdict: -1 }), (said) => "wrong: " + said.action),
      entry.state === "live"
        ? act("Withdraw", () => api("DELETE", pathOf(entryId)), "withdrawn", "danger")
        : act("Restore", () => api("POST", "/v1/cache/restore", { entry_id: entryId }), (said) => said.restored ? "restored" : "nothing to restore"),
      el("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  if (!dialog.open) dialog.showModal();
}

async function search(more = false) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData($("search"))) if (value) query.set(name, value);
  query.set("limit", "20");
  if (more && next) query.set("after", next);
  const found = await attempt(() => api("GET", "/v1/cache/entries?" + query));
  if (found === null) return;
  const rows = found.entries.map((entry) => el("li", {},
    el("div", { class: "head" }, el("span", { class: "status " + (entry.state === "live" ? "hit" : "error") }, entry.state), el("span", {}, entry.model || "no model"),
      el("span", {}, ago(now() - entry.created_at) + " old"), ...entry.tags.map((tag) => el("span", { class: "tag" }, tag))),
    el("div", { class: "pair" }, text("Prompt", entry.prompt), text("Answer", entry.text)),
    el("button", { type: "button", onclick: () => openEntry(entry.entry_id) }, "Open")));
  if (more) $("entry-list").append(...rows);
  else $("entry-list").replaceChildren(...(rows.length ? rows : [empty("No entries.")]));
  next = found.next;
  $("more").hidden = next === null;
}

async function drawWithdrawn() {
  const found = await attempt(() => api("GET", "/v1/cache/withdrawn?limit=50"));
  if (found === null) return;
  $("withdrawn-list").replaceChildren(...(found.entries.length ? found.entries.map((entry) => el("li", {},
    el("div", { class: "head" }, el("span", { class: "status error" }, entry.reason), el("span", {}, ago(now() - entry.withdrawn_at) + " ago")),
    el("div", { class: "pair" }, text("Prompt", entry.prompt), text("Answer", entry.text)),
    el("button", { type: "button", onclick: async () => {
      await attempt(() => api("POST", "/v1/cache/restore", { entry_id: entry.entry_id }), (said) => said.restored ? "restored" : "nothing to restore");
      await Promise.all([drawWithdrawn(), search(), refresh()]);
    } }, "Restore"))) : [empty("Nothing is withdrawn.")]));
}

async function explain(event) {
  event.preventDefault();
  const form = new FormData(event.target);
  const body = { prompt: form.get("prompt"), model: form.get("model") };
  if (overview.tenant === null && form.get("tenant")) body.tenant = form.get("tenant");
  const found = await attempt(() => {
    if (form.get("params")) body.params = JSON.parse(form.get("params"));
    return api("POST", "/v1/cache/explain", body);
  }, "explained");
  if (found === null) return;
  $("explained").replaceChildren(
    el("p", {}, el("span", { class: "status " + found.status }, found.match ? `${found.match} hit` : found.status), " ", found.reason ?? "", " ", found.detail),
    el("ul", { class: "cards" }, ...(found.candidates.length ? found.candidates.map((row) => el("li", {},
      el("div", { class: "head" }, el("span", { class: "status " + (row.reason ? "miss" : "hit") }, row.reason ?? "may be served"), el("span", {}, `similarity ${row.similarity.toFixed(3)}`),
        row.probability === null ? null : el("span", {}, `probability ${row.probability.toFixed(3)}`), el("span", {}, row.detail)),
      text("Stored prompt", row.prompt),
      row.flip ? text(row.reason ? "What would serve it" : "What would refuse it", row.flip) : null,
      el("table", {}, el("tbody", {}, ...row.findings.map((rule) => el("tr", {}, el("th", { scope: "row" }, rule.rule), el("td", {}, rule.verdict.replace("_", " ")), el("td", {}, rule.detail), el("td", {}, rule.flip))))),
      el("button", { type: "button", onclick: () => openEntry(row.entry_id) }, "Entry"))) : [empty("No candidates in this scope: same tenant, model, parameters and system prompt.")])));
}

async function invalidate(event) {
  event.preventDefault();
  const tag = new FormData(event.target).get("tag");
  const form = event.target;
  const dry = event.submitter !== form.elements.go;
  const said = await attempt(() => api("POST", "/v1/cache/invalidate", { tags: [tag], dry_run: dry }));
  if (said === null) return;
  $("invalidated").textContent = dry ? `${number(said.matched)} entries have this tag.` : "Withdrawn, everywhere.";
  form.elements.go.disabled = !dry;
  if (!dry) await Promise.all([search(), refresh()]);
}

async function refresh() {
  const found = await attempt(() => api("GET", "/v1/cache/overview?recent=50"));
  if (found === null) return false;
  overview = found;
  $("login").hidden = true;
  $("content").hidden = false;
  $("where").textContent = found.namespace + (found.tenant === null ? "" : ` · ${found.tenant || "no tenant"}`);
  $("explain-tenant").hidden = found.tenant !== null;
  drawNumbers();
  const rows = JSON.stringify([found.decisions, found.hot]);
  if (rows !== shown && !$("decision-list").contains(document.activeElement)) {
    shown = rows;
    drawDecisions();
    drawHot();
  }
  return true;
}

async function start() {
  if (await refresh()) await Promise.all([search(), drawWithdrawn()]);
}

$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  key = $("key").value;
  sessionStorage.setItem("semcache-key", key);
  say("");
  await start();
});
$("search").addEventListener("submit", (event) => { event.preventDefault(); search(); });
$("more").addEventListener("click", () => search(true));
$("explain-form").addEventListener("submit", explain);
$("invalidate-form").addEventListener("submit", invalidate);
$("invalidate-form").elements.tag.addEventListener("input", () => { $("invalidate-form").elements.go.disabled = true; });
start();
setInterval(() => { if (document.visibilityState === "visible" && !$("content").hidden) refresh(); }, REFRESH);
