// The timeline under the pointer: which interval it is, and what happened in it. Who has no pointer has the table.

function startTimeline() {
  const strips = byId("strips");
  if (!strips) return;
  const rows = byId("buckets").tBodies[0].rows;
  const names = [...byId("buckets").tHead.rows[0].cells].slice(2).map((cell) => cell.textContent.toLowerCase());
  const [cursor, readout] = [byId("cursor"), byId("readout")];
  const sheet = strips.querySelector("svg");
  readout.hidden = false;
  const rest = () => {
    cursor.hidden = true;
    readout.textContent = "Point at the strips to read one mark; the table below has all of them.";
  };
  strips.addEventListener("pointermove", (event) => {
    const box = sheet.getBoundingClientRect();
    const part = (event.clientX - box.left) / box.width;
    if (part < 0 || part >= 1) return rest();
    const [from, to, ...values] = [...rows[Math.floor(part * rows.length)].cells].map((cell) => cell.textContent);
    readout.textContent = `${from} to ${to}: ${values.map((value, at) => `${names[at]} ${value}`).join(" · ")}`;
    cursor.style.left = `${event.clientX - strips.getBoundingClientRect().left}px`;
    cursor.hidden = false;
  });
  strips.addEventListener("pointerleave", rest);
  rest();
}
