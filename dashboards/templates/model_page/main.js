// The page: pictures from files, the clipboard or the camera go to the worker, and its answers are drawn.

/* global openCamera, drawAnswer, listAnswer, describeAnswer */

const byId = (id) => document.getElementById(id);
const worker = new Worker("worker.js", { type: "module" });
const waiting = new Map(); // by the number of a picture: what takes its answer
let manifest = null, threshold = 0, shown = null, camera = null, sent = 0;

byId("state").textContent = "Loading the model.";
worker.addEventListener("error", () => showError("cannot start the model: this browser is too old, or a file of this page is missing"));
worker.addEventListener("message", ({ data }) => {
  if (data.id === undefined) return data.error ? showError(data.error) : begin(data.manifest);
  waiting.get(data.id)(data);
  return waiting.delete(data.id);
});

function begin(loaded) {
  manifest = loaded;
  setThreshold(manifest.threshold);
  byId("file").disabled = byId("camera").disabled = false;
  byId("state").textContent = "Choose a picture, drop or paste one, or use the camera.";
  document.body.dataset.drawn = "";
}

function showError(text) {
  byId("state").textContent = `No answer: ${text}.`;
  document.body.dataset.drawn = "";
}

function setThreshold(value) {
  threshold = value;
  byId("threshold").value = value;
  byId("threshold-value").textContent = `${Math.round(100 * value)} %`;
}

function askWorker(request) {
  sent += 1;
  worker.postMessage({ id: sent, ...request }, request.bitmap ? [request.bitmap] : []);
  return new Promise((resolve) => waiting.set(sent, resolve));
}

async function answerFile(file) {
  if (!manifest || !file) return;
  stopCamera();
  byId("state").textContent = `Reading ${file.name}.`;
  const reply = await askWorker({ file });
  showReply(reply, () => reply.id === sent);
}

function showReply({ answer, picture, error }, isWanted) { // nobody wants it once a later picture is under way
  if (!isWanted()) return picture?.close();
  if (error) return showError(error);
  if (shown) shown.picture.close();
  shown = { answer, picture };
  drawShown();
  dispatchEvent(new CustomEvent("answer", { detail: answer })); // for other scripts of the page
}

function drawShown() {
  const { answer, picture } = shown, { prepare, model, decode } = answer.times;
  const boxes = answer.boxes && answer.boxes.filter((box) => box.score >= threshold);
  const label = answer.scores && Object.entries(answer.scores).reduce((best, entry) => (entry[1] > best[1] ? entry : best))[0];
  const counted = { ...answer, boxes, label }, sentence = describeAnswer(counted);
  drawAnswer(byId("canvas"), picture, boxes || [], picture.width / answer.width, manifest.classes);
  byId("canvas").setAttribute("aria-label", `the picture: ${sentence}`);
  byId("stage").hidden = false;
  listAnswer(byId("answers"), counted);
  const parts = `${formatTime(decode)} to decode, ${formatTime(prepare)} to scale, ${formatTime(model)} for the model`;
  byId("state").textContent = `${sentence} ${formatTime(decode + prepare + model)}: ${parts}.`;
}

function formatTime(milliseconds) {
  return `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`;
}

async function startCamera() {
  try {
    camera = await openCamera(byId("video"));
  } catch (error) {
    byId("state").textContent = error.message;
    return;
  }
  byId("camera").textContent = "Stop the camera";
  const own = camera;
  while (camera === own) {
    showReply(await askWorker({ bitmap: await createImageBitmap(byId("video")) }), () => camera === own);
  }
}

function stopCamera() {
  if (camera) camera.getTracks().forEach((track) => track.stop());
  camera = null;
  byId("camera").textContent = "Use the camera";
}

byId("file").addEventListener("change", () => answerFile(byId("file").files[0]));
byId("camera").addEventListener("click", () => (camera ? stopCamera() : startCamera()));
byId("threshold").addEventListener("input", () => {
  setThreshold(Number(byId("threshold").value));
  if (shown) drawShown();
});
addEventListener("paste", (event) => answerFile(event.clipboardData.files[0]));
addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("over");
});
addEventListener("dragleave", () => document.body.classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  answerFile(event.dataTransfer.files[0]);
});
