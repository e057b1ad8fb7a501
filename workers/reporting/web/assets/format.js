// Figures and text, written as the page's templates write them.

const byId = (id) => document.getElementById(id);
const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");
const two = (number) => String(number).padStart(2, "0");

function duration(ms) {
  if (ms === null) return "–";
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60000) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (ms < 3600000) return `${Math.floor(ms / 60000)} min ${two(Math.floor((ms % 60000) / 1000))} s`;
  return `${count(Math.floor(ms / 3600000))} h ${two(Math.floor((ms % 3600000) / 60000))} min`;
}

// Somebody else's text, without what a reader would not see or be misled by: as `words.visible` does it.
const visible = (text) =>
  text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (each) => ("\n\t\u200c\u200d".includes(each) ? each : "\ufffd"));

// An element with its attributes and children; text is always text, never markup.
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) made.setAttribute(key, value);
  made.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
  return made;
}

const linkTo = (run) => `#run=${encodeURIComponent(run.toWellFormed?.() ?? run)}`;
