// The table of runs: searched, filtered and sorted as a whole, and shown a page at a time, so that 10,000 rows stay quick.

const data = JSON.parse(byId("data").textContent);
const runs = data.rows.map((row, number) => {
  const run = { number };
  data.fields.forEach((field, at) => (run[field] = row[at]));
  run.text = [run.run, run.outcome, run.value, run.worker, run.scorer].join("\n").toLowerCase();
  return run;
});

const table = { shown: runs, page: 0, key: null, falling: false };
const collator = new Intl.Collator("en", { numeric: true });

// The bins as the suite declares them, then the holes, then what has not ended.
function outcomeRank(run) {
  return run.bin !== null ? data.bins.indexOf(run.bin) : run.hole !== null ? data.bins.length : data.bins.length + 1;
}

const orders = {
  run: (a, b) => collator.compare(a.case, b.case) || a.trial - b.trial,
  outcome: (a, b) => outcomeRank(a) - outcomeRank(b) || collator.compare(a.outcome, b.outcome),
  value: (a, b) => collator.compare(a.value, b.value),
  worker: (a, b) => collator.compare(a.worker, b.worker),
};

function ordered(found) {
  const { key, falling } = table;
  if (key === null) return found;
  const compare = orders[key] ?? ((a, b) => a[key] - b[key]);
  const absent = (run) => run[key] === null || run[key] === "";
  // What has no value stands last either way, and equals keep the order of admission.
  return found.toSorted(
    (a, b) => absent(a) - absent(b) || (absent(a) ? 0 : falling ? compare(b, a) : compare(a, b)) || a.number - b.number,
  );
}

function refresh() {
  const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const state = byId("state").value;
  const [refused, again] = [byId("refused").checked, byId("redelivered").checked];
  const found = runs.filter(
    (run) =>
      words.every((word) => run.text.includes(word)) &&
      (!state || (state === "hole" ? run.hole !== null : run.outcome === state)) &&
      (!refused || run.refusals > 0) &&
      (!again || run.deliveries > 1),
  );
  table.shown = ordered(found);
  table.page = 0;
  showPage();
}

function showPage() {
  const pages = Math.max(1, Math.ceil(table.shown.length / data.page));
  table.page = Math.min(Math.max(0, table.page), pages - 1);
  const from = table.page * data.page;
  const rows = table.shown.slice(from, from + data.page);
  byId("table").tBodies[0].replaceChildren(...rows.map(rowOf));
  const [all, some] = [count(runs.length), count(table.shown.length)];
  const which = table.shown.length === runs.length ? `${all} run${runs.length === 1 ? "" : "s"}` : `${some} of ${all} runs`;
  byId("shown").textContent = pages > 1 ? `${which}, ${count(from + 1)} to ${count(from + rows.length)} shown` : which;
  byId("page").textContent = `Page ${count(table.page + 1)} of ${count(pages)}`;
  byId("pages").hidden = pages === 1;
  byId("first").disabled = byId("back").disabled = table.page === 0;
  byId("last").disabled = byId("next").disabled = table.page === pages - 1;
}

function rowOf(run) {
  const cells = data.columns.map(([key, kind]) => {
    if (kind === "run") return element("th", { scope: "row" }, element("a", { href: linkTo(run.run) }, run.run));
    if (kind === "outcome") return element("td", {}, outcomeOf(run));
    if (kind === "ms") return element("td", { class: "num" }, duration(run[key]));
    return kind === "count" ? element("td", { class: "num" }, count(run[key])) : element("td", {}, run[key]);
  });
  return element("tr", {}, ...cells);
}

const outcomeOf = (run) => element("span", { class: `outcome outcome-${run.look}` }, run.outcome);

function sortBy(head, kind) {
  const again = table.key === head.dataset.key;
  // Who sorts figures looks for the largest.
  table.falling = again ? !table.falling : kind === "count" || kind === "ms";
  table.key = head.dataset.key;
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", table.falling ? "descending" : "ascending");
  refresh();
}

function startRuns() {
  const heads = byId("table").tHead.rows[0].cells;
  data.columns.forEach(([, kind], at) => {
    const button = element("button", { type: "button" }, heads[at].textContent);
    button.addEventListener("click", () => sortBy(heads[at], kind));
    heads[at].replaceChildren(button);
  });
  const states = [...new Set(runs.map((run) => run.outcome))].sort(collator.compare);
  const holes = states.filter((state) => state.startsWith("hole: "));
  const choices = [["", "all"], ...states.filter((state) => !holes.includes(state)).map((state) => [state, state])];
  if (holes.length) choices.push(["hole", "any hole"], ...holes.map((state) => [state, state]));
  byId("state").append(...choices.map(([value, label]) => element("option", { value }, label)));
  const filters = byId("filters");
  filters.addEventListener("input", refresh);
  filters.addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", () => (filters.reset(), refresh()));
  filters.hidden = false;
  const turn = (id, to) => byId(id).addEventListener("click", () => ((table.page = to()), showPage()));
  turn("first", () => 0);
  turn("back", () => table.page - 1);
  turn("next", () => table.page + 1);
  turn("last", () => Infinity);
  showPage();
}

function showState(state) {
  byId("filters").reset();
  byId("state").value = state;
  refresh();
  byId("table-title").scrollIntoView();
}
