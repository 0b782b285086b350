// Answers pictures beside the page, so that it never stands still: {id, file} or {id, bitmap} in, {id, answer} out.

import { answerPicture, loadModel } from "./model.js";
import { decodePicture } from "./pixels.js";

const SHOWN_PIXELS = 1600; // longest side of the copy that the page draws

const loading = loadModel();
loading.then(({ manifest }) => postMessage({ manifest }), (error) => postMessage({ error: describeError(error) }));

addEventListener("message", async ({ data: { id, file, bitmap } }) => {
  try {
    const model = await loading, start = performance.now();
    const picture = bitmap || (await decodePicture(file, model.manifest.max_pixels));
    const decode = performance.now() - start, mayBeTransparent = Boolean(file) && file.type !== "image/jpeg";
    const answer = await answerPicture(model, picture, mayBeTransparent);
    const copy = await shrinkPicture(picture);
    postMessage({ id, answer: { ...answer, times: { decode, ...answer.times } }, picture: copy }, [copy]);
  } catch (error) {
    postMessage({ id, error: describeError(error) });
  }
});

async function shrinkPicture(bitmap) {
  const scale = SHOWN_PIXELS / Math.max(bitmap.width, bitmap.height);
  if (scale >= 1) return bitmap;
  const [resizeWidth, resizeHeight] = [bitmap.width, bitmap.height].map((side) => Math.max(Math.round(side * scale), 1));
  const copy = await createImageBitmap(bitmap, { resizeWidth, resizeHeight, resizeQuality: "medium" });
  bitmap.close();
  return copy;
}

function describeError(error) {
  return String((error && error.message) || error);
}
