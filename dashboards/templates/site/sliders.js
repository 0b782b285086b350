"use strict";
// a slider writes into the field beside it, on a logarithmic scale; a field moves its slider
const units = { s: 1, m: 60, h: 3600, d: 86400 };
const readField = (text, suffix) => {
  const match = /^\$?([\d.]+(?:e[+-]?\d+)?)\s*([a-z]*)/i.exec(text.trim());
  return match ? Number(match[1]) * (suffix === "s" ? units[match[2].toLowerCase() || "s"] ?? 1 : 1) : NaN;
};
const readSlider = (slider) => {
  const { steps, low, high, suffix } = slider.dataset, position = Number(slider.value);
  if (steps) return steps.split(" ")[position];
  return `${Number((low * (high / low) ** (position / slider.max)).toPrecision(3))}${suffix}`;
};
const placeSlider = (slider) => {
  const field = document.getElementById(slider.dataset.field), { steps, low, high, suffix } = slider.dataset;
  const value = readField(field.value, suffix);
  if (!(value > 0) || slider.disabled) return;
  const position = steps ? steps.split(" ").findIndex((step) => Number(step) >= value) : Math.log(value / low) / Math.log(high / low) * slider.max;
  slider.value = position < 0 ? slider.max : position;
};
document.addEventListener("input", ({ target }) => {
  if (!target.matches(".moves")) return;
  const field = document.getElementById(target.dataset.field);
  field.value = readSlider(target);
  target.setAttribute("aria-valuetext", field.value);
}, true);
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".moves").forEach(placeSlider));
