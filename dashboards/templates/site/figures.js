"use strict";
// draws the figures of a page from the data beside them, and again when a part of the page is replaced
const FIGURE_OPTIONS = { responsive: true, displayModeBar: false };
const drawFigures = (root) => {
  for (const data of root.querySelectorAll("script[data-figure]")) {
    const panel = document.getElementById(data.dataset.figure), figure = JSON.parse(data.textContent);
    if (!panel) continue;
    if (innerWidth < 600) figure.layout = { ...figure.layout, height: figure.layout.height * 1.15, font: { ...figure.layout.font, size: 12 } };
    Plotly.react(panel, figure.data, figure.layout, FIGURE_OPTIONS).then(() => { panel.dataset.ready = "yes"; });
  }
};
document.addEventListener("DOMContentLoaded", () => drawFigures(document));
document.addEventListener("htmx:afterSettle", ({ target }) => drawFigures(target));
