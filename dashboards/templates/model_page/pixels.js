// Turns pictures into the bytes that a model takes: decoded by the browser, scaled and placed by the code beside this.

import { fitCentreCrop, fitLetterbox } from "./placement.js";
import { Resizer } from "./resize.js";

const STRIP_PIXELS = 1 << 22; // read at a time: browsers limit the size of a canvas, phones to 16 megapixels
const OPAQUE = 255;

export async function decodePicture(file, maxPixels) {
  const name = file.name || "the picture";
  let bitmap;
  try {
    // turned upright as its EXIF says; colours stay as they are in the file
    const options = { imageOrientation: "from-image", colorSpaceConversion: "none", premultiplyAlpha: "none" };
    bitmap = await createImageBitmap(file, options);
  } catch {
    throw new Error(`cannot read ${name}: it is damaged, or in a format that this browser does not know; give PNG, JPEG or WebP`);
  }
  const { width, height } = bitmap;
  if (width * height <= maxPixels) return bitmap;
  bitmap.close();
  throw new Error(`cannot read ${name}: it has ${width}x${height} pixels, more than ${maxPixels}; make it smaller`);
}

export function preparePicture(bitmap, input, mayBeTransparent = true) {
  const placement = input.fit === "letterbox" ? fitLetterbox(bitmap, input.width) : fitCentreCrop(bitmap, input);
  const isGray = input.channels === 1, stride = bitmap.width * 4;
  const resizer = new Resizer(bitmap, placement.box, placement, isGray ? 1 : 4);
  const strips = mayBeTransparent && hasTransparency(bitmap) ? readStraightStrips(bitmap) : readStrips(bitmap);
  for (const { top, rows, data } of strips) {
    for (let row = 0; row < rows; row++) {
      const pixels = data.subarray(row * stride, (row + 1) * stride);
      resizer.addRow(top + row, isGray ? convertToGray(pixels) : pixels);
    }
  }
  return { placement, tensor: placePixels(resizer.finish(), placement, input) };
}

function* listStrips({ width, height }) {
  const count = Math.min(Math.max(Math.floor(STRIP_PIXELS / width), 1), height);
  for (let top = 0; top < height; top += count) yield { top, rows: Math.min(count, height - top) };
}

function* readStrips(bitmap) {
  const { width } = bitmap;
  let context = null;
  for (const { top, rows } of listStrips(bitmap)) {
    context = context || new OffscreenCanvas(width, rows).getContext("2d", { willReadFrequently: true });
    context.clearRect(0, 0, width, rows);
    context.drawImage(bitmap, 0, top, width, rows, 0, 0, width, rows);
    yield { top, rows, data: context.getImageData(0, 0, width, rows).data };
  }
}

function hasTransparency(bitmap) {
  for (const { data } of readStrips(bitmap)) {
    for (let place = 3; place < data.length; place += 4) if (data[place] !== OPAQUE) return true;
  }
  return false;
}

// A canvas keeps colours multiplied by their opacity, and so loses those of transparent pixels; a texture does not.
function* readStraightStrips(bitmap) {
  const gl = new OffscreenCanvas(1, 1).getContext("webgl"), { width, height } = bitmap;
  if (!gl || Math.max(width, height) > gl.getParameter(gl.MAX_TEXTURE_SIZE)) return yield* readStrips(bitmap);
  gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, bitmap);
  gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, gl.getParameter(gl.TEXTURE_BINDING_2D), 0);
  for (const { top, rows } of listStrips(bitmap)) {
    const data = new Uint8Array(width * rows * 4);
    gl.readPixels(0, top, width, rows, gl.RGBA, gl.UNSIGNED_BYTE, data);
    yield { top, rows, data };
  }
  return gl.getExtension("WEBGL_lose_context")?.loseContext();
}

function convertToGray(pixels) { // as Pillow's "L": ITU-R 601-2 luma in 16 fractional bits
  const gray = new Uint8Array(pixels.length / 4);
  for (let column = 0, place = 0; column < gray.length; column++, place += 4) {
    gray[column] = (pixels[place] * 19595 + pixels[place + 1] * 38470 + pixels[place + 2] * 7471 + 0x8000) >> 16;
  }
  return gray;
}

function placePixels(pixels, placement, { channels, width, height, fill }) {
  const tensor = new Uint8Array(channels * width * height);
  for (let channel = 0; channel < channels; channel++) {
    const plane = tensor.subarray(channel * width * height, (channel + 1) * width * height);
    if (fill) plane.fill(fill[channel]);
    for (let row = 0; row < placement.height; row++) {
      const target = (placement.top + row) * width + placement.left;
      for (let column = 0; column < placement.width; column++) {
        plane[target + column] = pixels[(row * placement.width + column) * channels + channel];
      }
    }
  }
  return tensor;
}
