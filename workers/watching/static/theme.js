// Before anything is painted, so that a dark page does not flash white. Three steps: as the system, light, dark.
"use strict";
(() => {
  const key = "evalbus-theme";
  const steps = ["auto", "light", "dark"];
  const root = document.documentElement;

  const stored = () => {
    try {
      const name = localStorage.getItem(key);
      return steps.includes(name) ? name : "auto";
    } catch {
      return "auto"; // storage is off: the choice lasts as long as the page
    }
  };

  const show = (name) => {
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
  };

  let now = stored();
  show(now);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    button.hidden = false;
    const name = () => { button.textContent = `Theme: ${now}`; };
    name();
    button.addEventListener("click", () => {
      now = steps[(steps.indexOf(now) + 1) % steps.length];
      show(now);
      name();
      try { localStorage.setItem(key, now); } catch { /* as above */ }
    });
  });
})();
