// Runs the published model with onnxruntime-web, on one thread, and reads its outputs as the Python bundle does.

import { env, InferenceSession, Tensor } from "./onnxruntime-web/ort.wasm.bundle.min.mjs";
import { preparePicture } from "./pixels.js";
import { moveBoxToPicture } from "./placement.js";

env.wasm.numThreads = 1; // several need a page that is isolated from other origins, which takes headers of the server

export async function loadModel() {
  const manifest = await (await fetchFile("model.json")).json();
  const program = new Uint8Array(await (await fetchFile("model.onnx")).arrayBuffer());
  return { manifest, session: await InferenceSession.create(program) };
}

async function fetchFile(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`cannot load ${name}: the server answers ${response.status}; copy the whole folder`);
  return response;
}

export async function answerPicture({ manifest, session }, bitmap, mayBeTransparent) {
  const start = performance.now();
  const { placement, tensor } = preparePicture(bitmap, manifest.input, mayBeTransparent);
  const prepared = performance.now(), { channels, height, width } = manifest.input;
  const inputs = { [session.inputNames[0]]: new Tensor("uint8", tensor, [1, channels, height, width]) };
  const outputs = await session.run(inputs);
  const times = { prepare: prepared - start, model: performance.now() - prepared };
  const picture = { width: bitmap.width, height: bitmap.height };
  const answer = manifest.kind === "boxes"
    ? { boxes: readBoxes(outputs, manifest.classes, placement, picture) }
    : { scores: readScores(outputs, manifest) };
  return { ...answer, ...picture, times };
}

function readBoxes({ scores, boxes, labels }, classes, placement, picture) {
  return Array.from(scores.data, (score, index) => ({
    label: classes[Number(labels.data[index])],
    score,
    ...moveBoxToPicture(boxes.data.subarray(4 * index, 4 * index + 4), placement, picture),
  })).filter((box) => box.width > 0 && box.height > 0);
}

function readScores({ logits }, { classes, temperature }) {
  const scaled = Array.from(logits.data, (logit) => logit / temperature), largest = Math.max(...scaled);
  const exponents = scaled.map((value) => Math.exp(value - largest));
  const sum = exponents.reduce((total, value) => total + value, 0);
  return Object.fromEntries(classes.map((name, index) => [name, exponents[index] / sum]));
}
