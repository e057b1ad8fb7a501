// The drawer in which a run opens. Its address is #run=…, so that it can be linked to, and left with the browser's "back".

const drawer = { run: null };
const byLink = new Map(runs.map((run) => [linkTo(run.run), run]));

function openRun(link) {
  const run = byLink.get(link);
  drawer.run = run ?? null;
  byId("drawer-title").textContent = run ? visible(run.run) : "No such run";
  const at = run ? table.shown.indexOf(run) : -1;
  byId("drawer-back").disabled = at < 1;
  byId("drawer-next").disabled = at < 0 || at + 1 >= table.shown.length;
  if (!byId("drawer").open) {
    byId("drawer").showModal();
    byId("drawer-title").focus();
  }
  byId("drawer-body").scrollTop = 0;
  if (run) fill(run);
  else byId("drawer-body").replaceChildren(element("p", {}, "This batch has no run of that name."));
}

async function fill(run) {
  const body = byId("drawer-body");
  body.replaceChildren(figuresOf(run), ...lifeOf(run), element("p", { class: "quiet" }, "Unpacking …"));
  body.setAttribute("aria-busy", "true");
  let more;
  try {
    const { words, picture, events } = await detailOf(run);
    more = [...answerOf(events), ...wordsOf(words), ...eventsOf(events), ...pictureOf(picture)];
  } catch (error) {
    const instead = `Its details can't be shown here (${error.message}). evalbus why and evalbus explain show them.`;
    more = [element("p", { class: "failed" }, instead)];
  }
  if (drawer.run !== run) return; // another one was opened meanwhile
  body.lastChild.remove();
  body.append(...more);
  body.removeAttribute("aria-busy");
}

function figuresOf(run) {
  const figures = [
    ["Outcome", outcomeOf(run)],
    ["Value", run.value || "–"],
    ["Deliveries", count(run.deliveries)],
    ["Refused", count(run.refusals)],
    ["Tokens", `${count(run.spent)}, ${count(run.durable)} durable`],
    ["Admitted", `+${duration(run.admitted)}`],
    ["Took", duration(run.took)],
    ["Worker", run.worker || "–"],
    ["Scorer", run.scorer || "–"],
  ];
  const made = figures.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  return element("dl", { class: "figures" }, ...made);
}

// Its life on one line: how long it waited, was solved, and was scored.
function lifeOf(run) {
  if (run.admitted === null || run.ended === null) return [];
  const leased = run.leased ?? run.ended;
  const sealed = run.sealed ?? run.ended;
  const parts = [
    ["waits", "waited for a worker", leased - run.admitted],
    ["solves", "from its first lease to its seal", sealed - leased],
    ["scores", "until it was scored", run.ended - sealed],
  ].filter(([, , ms]) => ms > 0);
  const whole = parts.reduce((sum, [, , ms]) => sum + ms, 0);
  if (!whole) return [];
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of [["width", "100%"], ["height", "14"], ["aria-hidden", "true"]]) svg.setAttribute(name, value);
  let at = 0;
  for (const [look, , ms] of parts) {
    const bar = document.createElementNS(svg.namespaceURI, "rect");
    const places = { class: `life-${look}`, x: `${(100 * at) / whole}%`, width: `${(100 * ms) / whole}%`, height: "14" };
    for (const [name, value] of Object.entries(places)) bar.setAttribute(name, value);
    svg.append(bar);
    at += ms;
  }
  const told = parts.map(([, words, ms]) => `${duration(ms)} ${words}`).join(", ");
  return [element("div", { class: "life" }, svg, element("p", {}, told))];
}

// What was sealed: whoever opens a run that failed looks for it first.
function answerOf(events) {
  const last = events.at(-1);
  return last?.[2] === "answer" ? [element("h3", {}, "Answer"), element("pre", { class: "answer" }, last[3])] : [];
}

// The lines of `evalbus why`; those that are set in are a list. The first one is the drawer's title already.
function wordsOf(words) {
  const told = element("div", { class: "told" });
  for (const line of words.slice(1)) {
    if (!line.startsWith("  ")) told.append(element("p", {}, line));
    else {
      if (told.lastChild?.tagName !== "UL") told.append(element("ul"));
      told.lastChild.append(element("li", {}, line.trim()));
    }
  }
  return [element("h3", {}, "In words"), told];
}

function eventsOf(events) {
  const title = element("h3", {}, "Transcript");
  if (!events.length) return [title, element("p", { class: "quiet" }, "Nothing was appended to it.")];
  const made = events.map(([seq, gen, kind, text]) =>
    element(
      "section",
      { class: "event" },
      element("h4", {}, `${seq}${kind ? ` · ${kind}` : ""} · generation ${gen}`),
      element("pre", {}, text),
    ),
  );
  return [title, ...made];
}

// An SVG of our own making, read as strict XML: what does not parse is not shown, and nothing in it can run here.
function pictureOf(picture) {
  if (!picture) return [];
  const root = new DOMParser().parseFromString(picture, "image/svg+xml").documentElement;
  if (root.localName !== "svg") return [element("p", { class: "failed" }, "Its picture is damaged.")];
  const frame = { class: "picture", role: "region", "aria-label": "Sequence diagram", tabindex: "0" };
  return [element("h3", {}, "Who said what to whom"), element("div", frame, document.importNode(root, true))];
}

function step(by) {
  const next = table.shown[table.shown.indexOf(drawer.run) + by];
  if (!next) return;
  history.replaceState(null, "", linkTo(next.run));
  openRun(linkTo(next.run));
}

// After the dialog has closed, by whatever: the address is the page's again, and the keyboard stays where it was.
function closed() {
  if (location.hash.startsWith("#run=")) history.pushState(null, "", location.href.split("#")[0] + "#runs");
  const row = [...document.querySelectorAll("#table tbody a")].find((link) => drawer.run && link.hash === linkTo(drawer.run.run));
  if (document.activeElement === document.body) row?.focus();
  drawer.run = null;
}

function startDrawer() {
  const dialog = byId("drawer");
  dialog.addEventListener("close", closed);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // beside it
  byId("drawer-close").addEventListener("click", () => dialog.close());
  byId("drawer-back").addEventListener("click", () => step(-1));
  byId("drawer-next").addEventListener("click", () => step(1));
}
