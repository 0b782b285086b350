// Scales pictures as Pillow's `resize` with BILINEAR does, to the same bytes: a triangle filter that grows with the
// reduction, first in one direction and then in the other, in integers of 22 fractional bits. A canvas filters otherwise.

const FRACTION_BITS = 22, HALF = 1 << (FRACTION_BITS - 1);

export function computeKernels(inputSize, start, end, outputSize) {
  const [first, last] = [Math.fround(start), Math.fround(end)]; // Pillow keeps the box in 32 bits
  const scale = Math.fround(last - first) / outputSize, reduction = Math.max(scale, 1);
  return Array.from({ length: outputSize }, (_, index) => {
    const center = first + (index + 0.5) * scale;
    const low = Math.max(Math.trunc(center - reduction + 0.5), 0);
    const high = Math.min(Math.trunc(center + reduction + 0.5), inputSize);
    const weights = Array.from({ length: high - low }, (_unused, offset) =>
      Math.max(1 - Math.abs((offset + low - center + 0.5) * (1 / reduction)), 0));
    const sum = weights.reduce((total, weight) => total + weight, 0);
    return { low, high, weights: Int32Array.from(weights, (weight) => Math.trunc(0.5 + (weight / sum) * 2 ** FRACTION_BITS)) };
  });
}

// As Pillow 13 does; earlier releases always begin with the rows, which changes a value by one at most.
export function startsWithColumns(input, output) {
  return output.height < input.height && input.height - output.height > 2 * (input.width - output.width);
}

export class Resizer {
  // Takes the rows of a picture one after another, so that a large one need not be in memory as a whole. `channels` is
  // the number of values per pixel of a row: 1, or 4 of which the last is left out.
  constructor(input, box, output, channels) {
    const kernels = computeKernels(input.height, box.top, box.bottom, output.height);
    this.kernels = computeKernels(input.width, box.left, box.right, output.width);
    this.output = output;
    this.channels = channels;
    this.kept = Math.min(channels, 3);
    this.columnsFirst = startsWithColumns(input, output);
    this.narrow = new Uint8ClampedArray(output.width * this.kept);
    this.sums = new ColumnSums(kernels, this.columnsFirst ? input.width * channels : this.narrow.length);
  }

  addRow(row, pixels) {
    if (!this.columnsFirst) scaleRow(pixels, this.channels, this.kernels, this.narrow);
    this.sums.addRow(row, this.columnsFirst ? pixels : this.narrow);
  }

  finish() {
    const rows = this.sums.finish();
    if (!this.columnsFirst) return rows;
    const { height } = this.output, stride = rows.length / height, width = this.narrow.length;
    const pixels = new Uint8ClampedArray(height * width);
    for (let row = 0; row < height; row++) {
      scaleRow(rows.subarray(row * stride, (row + 1) * stride), this.channels, this.kernels, this.narrow);
      pixels.set(this.narrow, row * width);
    }
    return pixels;
  }
}

class ColumnSums {
  constructor(kernels, stride) {
    Object.assign(this, { kernels, stride, first: 0 });
    this.sums = new Int32Array(kernels.length * stride).fill(HALF);
  }

  addRow(row, pixels) {
    const { kernels, stride, sums } = this;
    while (this.first < kernels.length && kernels[this.first].high <= row) this.first++;
    for (let index = this.first; index < kernels.length && kernels[index].low <= row; index++) {
      const weight = kernels[index].weights[row - kernels[index].low], start = index * stride;
      for (let column = 0; column < stride; column++) sums[start + column] += weight * pixels[column];
    }
  }

  finish() {
    return Uint8ClampedArray.from(this.sums, (sum) => sum >> FRACTION_BITS);
  }
}

function scaleRow(pixels, channels, kernels, target) {
  let place = 0;
  for (const { low, weights } of kernels) {
    const count = weights.length;
    if (channels === 1) {
      let gray = HALF;
      for (let tap = 0; tap < count; tap++) gray += pixels[low + tap] * weights[tap];
      target[place++] = gray >> FRACTION_BITS;
      continue;
    }
    let [red, green, blue] = [HALF, HALF, HALF];
    for (let tap = 0, source = low * 4; tap < count; tap++, source += 4) {
      const weight = weights[tap];
      red += pixels[source] * weight;
      green += pixels[source + 1] * weight;
      blue += pixels[source + 2] * weight;
    }
    target[place++] = red >> FRACTION_BITS;
    target[place++] = green >> FRACTION_BITS;
    target[place++] = blue >> FRACTION_BITS;
  }
}
