"use strict";
const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
const at = (id) => document.getElementById(id);
const unpacked = async (id) => {
  const bytes = Uint8Array.from(atob(at(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};

const draw = (figures) => {
  const drawn = Object.entries(figures).filter(([name]) => at(name));
  return Promise.all(drawn.map(([name, one]) => Plotly.react(at(name), one.data, narrowed(one.layout), CONFIG)));
};

// on a phone, a panel's height may not be less than its rows need, and its legend takes lines of its own
const narrowed = (layout) =>
  innerWidth < 600 ? { ...layout, height: layout.height * 1.15, font: { ...layout.font, size: 11 } } : layout;

const time = (seconds) => {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]])
    if (seconds >= 2 * size) return `${Number((seconds / size).toPrecision(3))} ${unit}`;
  return seconds >= 1 ? `${Number(seconds.toPrecision(3))} s` : `${Number((seconds * 1000).toPrecision(3))} ms`;
};

// a deadline: the cheapest plan that keeps it is marked, and told
const slide = (input, { plans, low, high, mark }) => {
  const deadline = low * (high / low) ** (input.value / 1000);
  const kept = plans.filter((plan) => plan.seconds <= deadline * 1.000001);
  const best = kept.sort((one, other) => one.worker_seconds - other.worker_seconds)[0];
  const words = best
    ? `${best.words}: ${time(best.seconds)}, ${Number(best.worker_seconds.toPrecision(3))} worker-seconds`
    : "no plan is that fast";
  at(`${input.dataset.for}-chosen`).textContent = `within ${time(deadline)}: ${words}`;
  input.setAttribute("aria-valuetext", time(deadline));
  Plotly.restyle(at(input.dataset.for), { x: [best ? [best.seconds] : []], y: [best ? [best.worker_seconds] : []] }, [mark]);
};

const sliders = (all) => {
  for (const [name, told] of Object.entries(all)) {
    const input = at(`${name}-deadline`);
    if (!input) continue;
    if (!input.dataset.moved) input.value = 1000 * Math.log(told.value / told.low) / Math.log(told.high / told.low);
    slide(input, told);
  }
};

const value = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
};
// what is not there comes last, whichever way it is sorted
const between = (one, other, down) => {
  if ((one === "-") !== (other === "-")) return one === "-" ? 1 : -1;
  const before = typeof one === typeof other ? (one < other ? -1 : one > other ? 1 : 0) : typeof one === "number" ? -1 : 1;
  return down ? -before : before;
};

const sort = (head, down = head.getAttribute("aria-sort") === "ascending") => {
  const table = head.closest("table");
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((one, other) => between(value(one, head.cellIndex), value(other, head.cellIndex), down));
  table.tBodies[0].append(...rows);
};

const find = (input) => {
  const words = input.value.toLowerCase();
  for (const row of at(input.dataset.for).tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(words);
};

const element = (kind, text, attributes = {}) => {
  const made = document.createElement(kind);
  made.textContent = text;
  for (const [name, one] of Object.entries(attributes)) made.setAttribute(name, one);
  return made;
};

// two experiments side by side: what differs is marked, and their curves share a panel
const compare = (all) => {
  const place = at("comparison"), picked = [...document.querySelectorAll(".pick:checked")].map((one) => one.value);
  for (const one of document.querySelectorAll(".pick")) one.disabled = picked.length > 1 && !one.checked;
  if (picked.length !== 2) return place.replaceChildren(element("p", "Choose two to hold them side by side."));
  const two = picked.map((name) => all[name]);
  const table = element("table", ""), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const name of ["", ...picked]) head.append(element("th", name, { scope: "col" }));
  for (const name of new Set(two.flatMap((one) => Object.keys(one.facts)))) {
    const row = body.insertRow(), cells = two.map((one) => one.facts[name] ?? "-");
    if (cells[0] !== cells[1]) row.className = "differs";
    row.append(element("th", name, { scope: "row" }), ...cells.map((text) => element("td", text)));
  }
  const scroll = element("div", "", { class: "scroll", tabindex: 0, role: "region", "aria-label": "two experiments" });
  scroll.append(table);
  place.replaceChildren(scroll);
  const curves = two.filter((one) => one.curve);
  if (!curves.length) return null;
  const panel = element("div", "", { class: "panel", id: "compared", role: "group", "aria-label": "their curves" });
  place.append(panel);
  const data = two.flatMap((one, i) => one.curve
    ? [{ x: one.curve.x, y: one.curve.y, name: picked[i], mode: "lines+markers", line: { color: ["#0072B2", "#D55E00"][i] } }] : []);
  const axis = (side) => ({ title: { text: [...new Set(curves.map((one) => one.curve[side]))].join(" / ") }, automargin: true });
  const clear = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 8, r: 8, t: 8, b: 8 } };
  return Plotly.newPlot(panel, data, { ...clear, height: 340, xaxis: axis("across"), yaxis: axis("up"), showlegend: true, legend: { orientation: "h", y: 1.1 } }, CONFIG);
};

// a live page: what is new takes the place of what was, without a reload, and what a person has chosen stays
const keep = (fresh) => {
  const twin = (old) => old.id && fresh.querySelector(`#${CSS.escape(old.id)}`);
  for (const old of document.querySelectorAll("main .panel")) {
    const place = twin(old);
    if (place) { old.setAttribute("aria-label", place.getAttribute("aria-label")); place.replaceWith(old); }
  }
  for (const old of document.querySelectorAll("main details[open]")) {
    const same = twin(old.closest("figure").querySelector(".panel"));
    if (same) same.closest("figure").querySelector("details").open = true;
  }
  for (const old of document.querySelectorAll("main input[id]")) {
    const same = twin(old);
    if (same) { same.value = old.value; Object.assign(same.dataset, old.dataset); }
  }
  for (const old of document.querySelectorAll(".pick:checked")) {
    const same = fresh.querySelector(`.pick[value="${CSS.escape(old.value)}"]`);
    if (same) same.checked = true;
  }
  for (const old of document.querySelectorAll("main th[aria-sort]")) {
    const head = twin(old.closest("table"))?.tHead.rows[0].cells[old.cellIndex];
    if (head) sort(head, old.getAttribute("aria-sort") === "descending");
  }
};

const take = async (news) => {
  const fresh = document.createElement("main"), focused = document.activeElement?.id;
  fresh.innerHTML = news.main; // made and escaped by the same templates as this page
  keep(fresh);
  document.querySelector("main").replaceWith(fresh);
  if (focused) at(focused)?.focus();
  at("lead").textContent = news.lead;
  await draw(news.figures);
  sliders(news.sliders);
  for (const input of document.querySelectorAll("[type=search]")) find(input);
  if (document.querySelector(".pick:checked")) compare(news.compared);
};

const live = async (from, state, pause = 2000) => {
  try {
    const answer = await fetch(from, { cache: "no-store" });
    if (!answer.ok) throw new Error(`the service says ${answer.status}`);
    const text = await answer.text();
    if (text !== state.text) {
      const news = JSON.parse(text);
      Object.assign(state, { text, data: news });
      await take(news);
    }
    at("pulse").textContent = `up to date at ${new Date().toLocaleTimeString()}`;
    pause = 2000;
  } catch (error) {
    at("pulse").textContent = `not connected at ${new Date().toLocaleTimeString()} (${error.message}): trying again`;
    pause = Math.min(pause * 2, 30000);
  }
  setTimeout(() => live(from, state, pause), pause);
};

const begin = async () => {
  const script = document.createElement("script");
  script.textContent = await unpacked("drawing");
  document.head.append(script);
  const state = { data: JSON.parse(await unpacked("data")) };
  await draw(state.data.figures);
  sliders(state.data.sliders);
  document.addEventListener("click", ({ target }) => target.matches(".sort") && sort(target.closest("th")));
  document.addEventListener("input", ({ target }) => {
    if (target.matches("[type=search]")) find(target);
    if (target.matches("[type=range]")) { target.dataset.moved = "yes"; slide(target, state.data.sliders[target.dataset.for]); }
  });
  document.addEventListener("change", ({ target }) => target.matches(".pick") && compare(state.data.compared));
  document.body.dataset.drawn = "yes";
  if (document.body.dataset.live) setTimeout(() => live(document.body.dataset.live, state), 2000);
};
begin().catch((error) => {
  for (const panel of document.querySelectorAll(".panel")) panel.textContent = `cannot be drawn here: ${error.message}`;
});
