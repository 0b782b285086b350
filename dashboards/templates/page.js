"use strict";
const CONFIG = { responsive: true, displayModeBar: false }; // its tools would cover the legend: they are below the figure
const byId = (id) => document.getElementById(id);
// the text of a script element that holds gzip in base64
const decompress = async (id) => {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (char) => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};

const drawFigures = (figures) => {
  const shown = Object.entries(figures).filter(([name]) => byId(name));
  // a copy of the layout, because Plotly writes the ranges of a zoom into it
  return Promise.all(shown.map(([name, { data, layout }]) => Plotly.react(byId(name), data, fitToScreen(structuredClone(layout)), CONFIG)));
};

// on a phone the legend takes lines of its own: a panel gets higher, so that its rows keep their height
const fitToScreen = (layout) =>
  innerWidth < 600 ? { ...layout, height: layout.height * 1.15, font: { ...layout.font, size: 12 } } : layout;

// back to the ranges that a figure came with, or else to all of its data
const resetZoom = (panel, { layout } = { layout: {} }) => {
  const axes = Object.keys(panel.layout).filter((name) => /^[xy]axis/.test(name));
  const range = (name) => layout[name]?.range ? [`${name}.range`, layout[name].range] : [`${name}.autorange`, true];
  return Plotly.relayout(panel, Object.fromEntries(axes.map(range)));
};

const saveImage = (panel) => {
  const { width, height } = panel.getBoundingClientRect(), { color, backgroundColor } = getComputedStyle(document.body);
  const layout = { ...panel.layout, font: { ...panel.layout.font, color }, paper_bgcolor: backgroundColor };
  return Plotly.downloadImage({ data: panel.data, layout }, { format: "png", width, height, scale: 2, filename: `${document.title} ${panel.id}` });
};

// what a table shows, with the numbers in full
const saveTable = (table) => {
  const quote = (text) => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const rows = [...table.rows].filter((row) => !row.hidden).map((row) => [...row.cells].filter((cell) => !cell.querySelector(".pick") && cell.textContent !== "compare"));
  const text = rows.map((cells) => cells.map((cell) => quote(cell.dataset.value ?? cell.textContent.trim())).join(",")).join("\n");
  const link = createElement("a", "", { href: `data:text/csv;charset=utf-8,${encodeURIComponent(text + "\n")}`, download: `${document.title} ${table.id}.csv` });
  link.click();
};

const formatTime = (seconds) => {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]])
    if (seconds >= 2 * size) return `${Number((seconds / size).toPrecision(3))} ${unit}`;
  return seconds >= 1 ? `${Number(seconds.toPrecision(3))} s` : `${Number((seconds * 1000).toPrecision(3))} ms`;
};

// mark the cheapest plan within the deadline of a slider, and show it in words
const applyDeadline = (input, { plans, low, high, mark }) => {
  const deadline = low * (high / low) ** (input.value / 1000);
  const inTime = plans.filter((plan) => plan.seconds <= deadline * 1.000001);
  const cost = (plan) => plan.dollars ?? plan.worker_seconds;
  const best = inTime.sort((a, b) => cost(a) - cost(b))[0];
  const text = best
    ? `${best.words}: ${formatTime(best.seconds)}, ${Number(cost(best).toPrecision(3))} ${best.dollars ? "dollars" : "worker-seconds"}`
    : "no plan is that fast";
  byId(`${input.dataset.for}-chosen`).textContent = `within ${formatTime(deadline)}: ${text}`;
  input.setAttribute("aria-valuetext", formatTime(deadline));
  Plotly.restyle(byId(input.dataset.for), { x: [best ? [best.seconds] : []], y: [best ? [cost(best)] : []] }, [mark]);
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

const CHOOSE_TWO = "Check two experiments in the table to compare them side by side.";

const createRow = (name, pair, className) => {
  const row = createElement("tr", "", { class: className });
  row.append(createElement("th", name, { scope: "row" }), ...pair.map((entry) => createElement("td", entry.facts[name] ?? "-")));
  return row;
};

const createFactTable = (picked, rows) => {
  const table = createElement("table", ""), scroll = createElement("div", "", { class: "scroll", tabindex: 0, role: "region", "aria-label": "comparison of two experiments" });
  const head = table.createTHead().insertRow();
  for (const name of ["", ...picked]) head.append(createElement(name ? "th" : "td", name, name ? { scope: "col" } : {}));
  table.createTBody().append(...rows);
  scroll.append(table);
  return scroll;
};

// show two experiments side by side: first what can be compared, with differences marked, and curves over the same
// axes in one figure; what only one of them has is behind a click
const compareExperiments = (entries) => {
  const target = byId("comparison"), picked = [...document.querySelectorAll(".pick:checked")].map((box) => box.value);
  for (const box of document.querySelectorAll(".pick")) box.disabled = picked.length > 1 && !box.checked;
  if (picked.length !== 2) return target.replaceChildren(createElement("p", CHOOSE_TWO));
  const pair = picked.map((name) => entries[name]), names = [...new Set(pair.flatMap((entry) => Object.keys(entry.facts)))];
  const shared = names.filter((name) => pair.every((entry) => name in entry.facts)), others = names.filter((name) => !shared.includes(name));
  const isEqual = (name) => pair[0].facts[name] === pair[1].facts[name];
  const curves = pair.filter((entry) => entry.curve), axes = [...new Set(curves.map(({ curve }) => `${curve.up} over ${curve.across}`))];
  const summary = `Comparable: ${shared.join(", ") || "nothing"}. The ${shared.filter((name) => !isEqual(name)).length} that differ are marked.`;
  const conflict = axes.length > 1 ? ` Their curves are not comparable (${axes.join("; ")}): open their pages for them.` : "";
  target.replaceChildren(createElement("p", summary + conflict), createFactTable(picked, shared.map((name) => createRow(name, pair, isEqual(name) ? "" : "differs"))));
  if (others.length) {
    const details = createElement("details", "");
    details.append(createElement("summary", `${others.length} that only one of them has`), createFactTable(picked, others.map((name) => createRow(name, pair, ""))));
    target.append(details);
  }
  return axes.length === 1 ? drawCurves(target, picked, pair) : null;
};

const drawCurves = (target, picked, pair) => {
  const panel = createElement("div", "", { class: "panel", id: "compared", role: "group", "aria-label": "curves of the two experiments" });
  target.append(panel);
  const data = pair.flatMap(({ curve }, i) => curve
    ? [{ x: curve.x, y: curve.y, name: picked[i], mode: "lines+markers", line: { color: ["#0072B2", "#D55E00"][i] } }] : []);
  const { curve } = pair.find((entry) => entry.curve);
  const axis = (side) => ({ title: { text: curve[side] }, automargin: true, zeroline: false, ticks: "outside", gridcolor: "rgba(128,128,128,0.25)", separatethousands: true, exponentformat: "none" });
  const theme = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 8, r: 24, t: 8, b: 8 }, font: { family: "system-ui, sans-serif", size: 13 } };
  const legend = { orientation: "h", yanchor: "bottom", y: 1.02, x: 0 }, hoverlabel = { bgcolor: "#1c2126", bordercolor: "#8a8a8a" };
  return Plotly.newPlot(panel, data, fitToScreen({ ...theme, height: 340, xaxis: axis("across"), yaxis: axis("up"), showlegend: true, legend, hoverlabel, hovermode: "x unified" }), CONFIG);
};

// carry the state of an open page over to its update: drawn panels, inputs, opened details, checked boxes, sorting
const keepState = (fresh) => {
  const counterpart = (old) => old.id && fresh.querySelector(`#${CSS.escape(old.id)}`);
  for (const old of document.querySelectorAll("main .panel")) {
    const same = counterpart(old);
    if (same) { old.setAttribute("aria-label", same.getAttribute("aria-label")); same.replaceWith(old); }
  }
  for (const old of document.querySelectorAll("main figure details[open]")) {
    const same = counterpart(old.closest("figure").querySelector(".panel"))?.closest("figure").querySelectorAll("details");
    const index = [...old.closest("figure").querySelectorAll("details")].indexOf(old);
    if (same?.[index]) same[index].open = true;
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
  if (byId("drawing")) {
    const script = document.createElement("script");
    script.textContent = await decompress("drawing");
    document.head.append(script);
  }
  const state = { data: JSON.parse(await decompress("data")) };
  await drawFigures(state.data.figures);
  updateSliders(state.data.sliders);
  document.addEventListener("click", ({ target }) => {
    if (target.matches(".sort")) sortTable(target.closest("th"));
    if (target.dataset.reset) resetZoom(byId(target.dataset.reset), state.data.figures[target.dataset.reset]);
    if (target.dataset.save) saveImage(byId(target.dataset.save));
    if (target.dataset.csv) saveTable(byId(target.dataset.csv));
  });
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
