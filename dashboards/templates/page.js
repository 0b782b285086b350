"use strict";
const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
const byId = (id) => document.getElementById(id);
// the text of a script element that holds gzip in base64
const decompress = async (id) => {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (char) => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};

const drawFigures = (figures) => {
  const shown = Object.entries(figures).filter(([name]) => byId(name));
  return Promise.all(shown.map(([name, { data, layout }]) => Plotly.react(byId(name), data, fitToScreen(layout), CONFIG)));
};

// on a phone the legend takes lines of its own: a panel gets higher, so that its rows keep their height
const fitToScreen = (layout) =>
  innerWidth < 600 ? { ...layout, height: layout.height * 1.15, font: { ...layout.font, size: 11 } } : layout;

const formatTime = (seconds) => {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]])
    if (seconds >= 2 * size) return `${Number((seconds / size).toPrecision(3))} ${unit}`;
  return seconds >= 1 ? `${Number(seconds.toPrecision(3))} s` : `${Number((seconds * 1000).toPrecision(3))} ms`;
};

// mark the cheapest plan within the deadline of a slider, and show it in words
const applyDeadline = (input, { plans, low, high, mark }) => {
  const deadline = low * (high / low) ** (input.value / 1000);
  const inTime = plans.filter((plan) => plan.seconds <= deadline * 1.000001);
  const best = inTime.sort((a, b) => a.worker_seconds - b.worker_seconds)[0];
  const text = best
    ? `${best.words}: ${formatTime(best.seconds)}, ${Number(best.worker_seconds.toPrecision(3))} worker-seconds`
    : "no plan is that fast";
  byId(`${input.dataset.for}-chosen`).textContent = `within ${formatTime(deadline)}: ${text}`;
  input.setAttribute("aria-valuetext", formatTime(deadline));
  Plotly.restyle(byId(input.dataset.for), { x: [best ? [best.seconds] : []], y: [best ? [best.worker_seconds] : []] }, [mark]);
};

const updateSliders = (sliders) => {
  for (const [name, slider] of Object.entries(sliders)) {
    const input = byId(`${name}-deadline`);
    if (!input) continue;
    if (!input.dataset.moved) input.value = 1000 * Math.log(slider.value / slider.low) / Math.log(slider.high / slider.low);
    applyDeadline(input, slider);
  }
};

const cellValue = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
};
// missing values (-) come last in either direction, numbers before texts
const compareValues = (a, b, descending) => {
  if ((a === "-") !== (b === "-")) return a === "-" ? 1 : -1;
  const order = typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
  return descending ? -order : order;
};

const sortTable = (head, descending = head.getAttribute("aria-sort") === "ascending") => {
  const table = head.closest("table");
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compareValues(cellValue(a, head.cellIndex), cellValue(b, head.cellIndex), descending));
  table.tBodies[0].append(...rows);
};

const filterRows = (input) => {
  const query = input.value.toLowerCase();
  for (const row of byId(input.dataset.for).tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(query);
};

const createElement = (tag, text, attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, attribute] of Object.entries(attributes)) element.setAttribute(name, attribute);
  return element;
};

// show two experiments side by side: facts that differ are marked, and their curves share a panel
const compareExperiments = (entries) => {
  const target = byId("comparison"), picked = [...document.querySelectorAll(".pick:checked")].map((box) => box.value);
  for (const box of document.querySelectorAll(".pick")) box.disabled = picked.length > 1 && !box.checked;
  if (picked.length !== 2) return target.replaceChildren(createElement("p", "Choose two experiments to compare them side by side."));
  const pair = picked.map((name) => entries[name]);
  const table = createElement("table", ""), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const name of ["", ...picked]) head.append(createElement("th", name, { scope: "col" }));
  for (const name of new Set(pair.flatMap((entry) => Object.keys(entry.facts)))) {
    const row = body.insertRow(), cells = pair.map((entry) => entry.facts[name] ?? "-");
    if (cells[0] !== cells[1]) row.className = "differs";
    row.append(createElement("th", name, { scope: "row" }), ...cells.map((text) => createElement("td", text)));
  }
  const scroll = createElement("div", "", { class: "scroll", tabindex: 0, role: "region", "aria-label": "comparison of two experiments" });
  scroll.append(table);
  target.replaceChildren(scroll);
  const curves = pair.filter((entry) => entry.curve);
  if (!curves.length) return null;
  const panel = createElement("div", "", { class: "panel", id: "compared", role: "group", "aria-label": "curves of the two experiments" });
  target.append(panel);
  const data = pair.flatMap(({ curve }, i) => curve
    ? [{ x: curve.x, y: curve.y, name: picked[i], mode: "lines+markers", line: { color: ["#0072B2", "#D55E00"][i] } }] : []);
  const axis = (side) => ({ title: { text: [...new Set(curves.map((entry) => entry.curve[side]))].join(" / ") }, automargin: true });
  const theme = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 8, r: 8, t: 8, b: 8 } };
  return Plotly.newPlot(panel, data, { ...theme, height: 340, xaxis: axis("across"), yaxis: axis("up"), showlegend: true, legend: { orientation: "h", y: 1.1 } }, CONFIG);
};

// carry the state of an open page over to its update: drawn panels, inputs, opened details, checked boxes, sorting
const keepState = (fresh) => {
  const counterpart = (old) => old.id && fresh.querySelector(`#${CSS.escape(old.id)}`);
  for (const old of document.querySelectorAll("main .panel")) {
    const same = counterpart(old);
    if (same) { old.setAttribute("aria-label", same.getAttribute("aria-label")); same.replaceWith(old); }
  }
  for (const old of document.querySelectorAll("main details[open]")) {
    const same = counterpart(old.closest("figure").querySelector(".panel"));
    if (same) same.closest("figure").querySelector("details").open = true;
  }
  for (const old of document.querySelectorAll("main input[id]")) {
    const same = counterpart(old);
    if (same) { same.value = old.value; Object.assign(same.dataset, old.dataset); }
  }
  for (const old of document.querySelectorAll(".pick:checked")) {
    const same = fresh.querySelector(`.pick[value="${CSS.escape(old.value)}"]`);
    if (same) same.checked = true;
  }
  for (const old of document.querySelectorAll("main th[aria-sort]")) {
    const head = counterpart(old.closest("table"))?.tHead.rows[0].cells[old.cellIndex];
    if (head) sortTable(head, old.getAttribute("aria-sort") === "descending");
  }
};

const applyUpdate = async (update) => {
  const fresh = document.createElement("main"), focused = document.activeElement?.id;
  fresh.innerHTML = update.main; // rendered and escaped by the same templates as this page
  keepState(fresh);
  document.querySelector("main").replaceWith(fresh);
  if (focused) byId(focused)?.focus();
  byId("lead").textContent = update.lead;
  await drawFigures(update.figures);
  updateSliders(update.sliders);
  for (const input of document.querySelectorAll("[type=search]")) filterRows(input);
  if (document.querySelector(".pick:checked")) compareExperiments(update.compared);
};

// poll for updates: every 2 s, or up to 30 s apart while the service does not answer
const pollUpdates = async (url, state, pause = 2000) => {
  try {
    const response = await fetch(url, { cache: "no-store" });
    if (!response.ok) throw new Error(`the service answered with status ${response.status}`);
    const text = await response.text();
    if (text !== state.text) {
      const update = JSON.parse(text);
      Object.assign(state, { text, data: update });
      await applyUpdate(update);
    }
    byId("pulse").textContent = `up to date at ${new Date().toLocaleTimeString()}`;
    pause = 2000;
  } catch (error) {
    byId("pulse").textContent = `not connected at ${new Date().toLocaleTimeString()} (${error.message}): trying again`;
    pause = Math.min(pause * 2, 30000);
  }
  setTimeout(() => pollUpdates(url, state, pause), pause);
};

const start = async () => {
  const script = document.createElement("script");
  script.textContent = await decompress("drawing");
  document.head.append(script);
  const state = { data: JSON.parse(await decompress("data")) };
  await drawFigures(state.data.figures);
  updateSliders(state.data.sliders);
  document.addEventListener("click", ({ target }) => target.matches(".sort") && sortTable(target.closest("th")));
  document.addEventListener("input", ({ target }) => {
    if (target.matches("[type=search]")) filterRows(target);
    if (target.matches("[type=range]")) { target.dataset.moved = "yes"; applyDeadline(target, state.data.sliders[target.dataset.for]); }
  });
  document.addEventListener("change", ({ target }) => target.matches(".pick") && compareExperiments(state.data.compared));
  document.body.dataset.drawn = "yes";
  if (document.body.dataset.live) setTimeout(() => pollUpdates(document.body.dataset.live, state), 2000);
};
start().catch((error) => {
  for (const panel of document.querySelectorAll(".panel")) panel.textContent = `this figure cannot be drawn: ${error.message}`;
});
