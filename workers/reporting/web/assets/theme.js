// Light or dark: as the system has it, until the reader says otherwise. Kept where the browser lets a page keep things.

function startTheme() {
  const chosen = byId("theme");
  const show = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  try {
    const kept = localStorage.getItem("evalbus-theme");
    const radio = chosen.querySelector(`input[value="${kept === "light" || kept === "dark" ? kept : "auto"}"]`);
    radio.checked = true;
    show(radio.value);
  } catch {} // a file that is opened from a disk may be refused its storage
  chosen.hidden = false;
  chosen.addEventListener("change", (event) => {
    show(event.target.value);
    try {
      localStorage.setItem("evalbus-theme", event.target.value);
    } catch {}
  });
}
