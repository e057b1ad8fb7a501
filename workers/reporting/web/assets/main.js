// The address says what is open: #run=… a run, #state=… the table with the runs of one outcome.

// As `linkTo` writes it: a link that went through a chat or a ticket may come back escaped in another way, or cut off.
function rewritten(name, hash) {
  const value = hash.slice(name.length + 2);
  try {
    return `#${name}=${encodeURIComponent(decodeURIComponent(value))}`;
  } catch {
    return `#${name}=`;
  }
}

function follow() {
  const { hash } = location;
  if (hash.startsWith("#run=")) return openRun(rewritten("run", hash));
  if (byId("drawer").open) byId("drawer").close();
  if (hash.startsWith("#state=")) showState(decodeURIComponent(rewritten("state", hash).split("=")[1]));
}

startTheme();
startTimeline();
startRuns();
startDrawer();
addEventListener("hashchange", follow);
follow();
