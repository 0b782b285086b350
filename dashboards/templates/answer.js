"use strict";
// Shows the answer of a model to a picture. The page of a service and the page that runs a model itself share this script.

const BOX_COLORS = ["#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#ffffff"];
const MAX_ANSWER_ROWS = 20;

async function openCamera(video) {
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    throw new Error("The camera cannot be used here: " + (error.message || error) + ".");
  }
  video.srcObject = stream;
  await video.play();
  return stream;
}

// boxes are in pixels of the picture, of which the bitmap may be a smaller copy
function drawAnswer(canvas, bitmap, boxes, scale = 1, labels = [...new Set(boxes.map((box) => box.label))].sort()) {
  const context = canvas.getContext("2d"), unit = Math.max(bitmap.width, bitmap.height) / 400;
  [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
  context.drawImage(bitmap, 0, 0);
  context.lineWidth = Math.max(2 * unit, 1); // a thinner line cannot be seen on a small picture
  context.font = `${14 * unit}px system-ui`;
  for (const box of boxes) {
    const color = BOX_COLORS[labels.indexOf(box.label) % BOX_COLORS.length], text = `${box.label} ${Math.round(100 * box.score)} %`;
    const [x, y, width, height] = [box.x, box.y, box.width, box.height].map((side) => side * scale);
    context.strokeStyle = color;
    context.strokeRect(x, y, width, height);
    const top = Math.max(y - 18 * unit, 0);
    context.fillStyle = "#000c";
    context.fillRect(x, top, context.measureText(text).width + 6 * unit, 18 * unit);
    context.fillStyle = color;
    context.fillText(text, x + 3 * unit, top + 14 * unit);
  }
}

function listAnswer(table, answer) {
  const rows = answer.boxes ? answer.boxes.map((box) => [box.label, box.score]) : Object.entries(answer.scores);
  rows.sort((first, second) => second[1] - first[1]);
  table.replaceChildren(...rows.slice(0, MAX_ANSWER_ROWS).map(([label, score]) => {
    const row = document.createElement("tr");
    for (const text of [label, `${(100 * score).toFixed(1)} %`]) row.append(Object.assign(document.createElement("td"), { textContent: text }));
    return row;
  }));
}

function describeAnswer({ boxes, label }) {
  return boxes ? `Found ${boxes.length} ${boxes.length === 1 ? "box" : "boxes"}.` : `Predicted ${label}.`;
}
