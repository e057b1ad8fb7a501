// Puts what the server renders where it belongs. There is nothing here that knows what a batch is.
"use strict";
(() => {
  const stream = document.body.dataset.stream;
  const link = document.getElementById("link");
  const linkText = document.getElementById("link-text");
  const trouble = document.getElementById("trouble");
  const spoken = document.getElementById("spoken");
  const again = 3000; // ms until another try when the server has refused the stream
  const quiet = 30000; // ms between two things that a screen reader is told
  let source = null;
  let timer = 0;
  let state = null;
  let saidAt = 0;

  const tell = (name, text) => {
    if (link.dataset.link === name) return;
    link.dataset.link = name;
    linkText.textContent = text;
  };

  // Whoever has marked something in a part, to copy it, keeps it until the marks are gone.
  const isMarked = (place) => {
    const marks = document.getSelection();
    return marks !== null && !marks.isCollapsed && marks.containsNode(place, true);
  };

  // What has the focus, in words that find it again in the new HTML.
  const focusOf = (place) => {
    const at = document.activeElement;
    if (at === null || at === place || !place.contains(at)) return null;
    if (at.id) return `#${CSS.escape(at.id)}`;
    const href = at.getAttribute("href");
    return href === null ? null : `a[href="${CSS.escape(href)}"]`;
  };

  const held = new Map();
  const put = (name, html) => {
    const place = document.getElementById(name);
    if (place === null) return;
    if (isMarked(place)) {
      held.set(name, html);
      return;
    }
    held.delete(name);
    const focus = focusOf(place);
    const open = new Set(Array.from(place.querySelectorAll("details[open]"), (one) => one.id));
    const scrolled = new Map(Array.from(place.querySelectorAll(".scroll"), (one) => [one.id, [one.scrollLeft, one.scrollTop]]));
    place.innerHTML = html; // the server has escaped it; the page's policy runs no script from it
    for (const one of place.querySelectorAll("details")) one.open = open.has(one.id);
    for (const [id, [left, top]] of scrolled) document.getElementById(id)?.scrollTo(left, top);
    if (focus !== null) place.querySelector(focus)?.focus({ preventScroll: true });
  };

  document.addEventListener("selectionchange", () => {
    for (const [name, html] of held) put(name, html);
  });

  const say = (news) => {
    const now = Date.now();
    if (state !== null && news.state === state && now - saidAt < quiet) return;
    if (state !== null) spoken.textContent = news.sentence; // the first is on the page already
    state = news.state;
    saidAt = now;
  };

  const open = () => {
    clearTimeout(timer);
    if (source !== null || document.hidden) return;
    source = new EventSource(stream);
    source.addEventListener("open", () => tell("live", "updating"));
    source.addEventListener("parts", (event) => {
      const news = JSON.parse(event.data);
      for (const [name, html] of Object.entries(news.html)) put(name, html);
      if (news.title) document.title = `${news.title} · evalbus`;
      trouble.hidden = true;
      tell("live", "updating");
      say(news);
    });
    source.addEventListener("trouble", (event) => {
      if (trouble.hidden || trouble.textContent !== event.data) trouble.textContent = event.data;
      trouble.hidden = false;
      tell("stale", "not up to date");
    });
    source.addEventListener("error", () => {
      tell("lost", "connection lost, trying again");
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      close();
      timer = setTimeout(open, again);
    });
  };

  const close = () => {
    source?.close();
    source = null;
  };

  // A tab that nobody sees costs nothing, and takes none of the few connections that a browser has for one server.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      clearTimeout(timer);
      close();
      tell("waiting", "paused");
    } else open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
})();
