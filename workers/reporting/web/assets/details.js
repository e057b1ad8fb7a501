// What opens with a run: packed in pieces of some runs each. A piece is unpacked when one of its runs is opened.

const unpacked = new Map();
const PIECES_KEPT = 4;

const parsed = new Promise((done) => {
  if (document.readyState !== "loading") done();
  else document.addEventListener("DOMContentLoaded", () => done());
});

async function detailOf(run) {
  const piece = Math.floor(run.number / data.chunk);
  if (!unpacked.has(piece)) {
    unpacked.set(piece, await unpack(piece));
    if (unpacked.size > PIECES_KEPT) unpacked.delete(unpacked.keys().next().value);
  }
  const [name, words, picture, events] = unpacked.get(piece)[run.number % data.chunk];
  if (name !== run.run) throw new Error(`the page holds ${name} in the place of ${run.run}`);
  return { words, picture, events };
}

async function unpack(piece) {
  if (!byId(`chunk-${piece}`)) await parsed; // opened by a link while the page was still being read
  const packed = Uint8Array.from(atob(byId(`chunk-${piece}`).textContent), (each) => each.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
