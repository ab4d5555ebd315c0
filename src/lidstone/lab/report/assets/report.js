"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // Theme: follow the system until the reader chooses.
  const button = document.getElementById("theme");
  const remembered = () => { try { return localStorage.getItem("lidstone-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("lidstone-theme", theme); } catch { /* a file may have no storage */ } };
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
  const showTheme = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    button.textContent = isDark() ? "Light" : "Dark";
  };
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    showTheme();
  });
  dark.addEventListener("change", showTheme);
  showTheme();

  // Legends: a button shows or hides its method in its own figure; pointing at it highlights the method.
  for (const figure of document.querySelectorAll("figure")) {
    const series = [...figure.querySelectorAll("g.series")];
    for (const key of figure.querySelectorAll("button.key")) {
      const mine = series.filter((line) => line.dataset.series === key.dataset.series);
      const others = series.filter((line) => line.dataset.series !== key.dataset.series);
      const fade = (on) => others.forEach((line) => line.classList.toggle("faded", on));
      key.addEventListener("click", () => {
        const on = key.getAttribute("aria-pressed") !== "true";
        key.setAttribute("aria-pressed", String(on));
        mine.forEach((line) => line.classList.toggle("hidden", !on));
      });
      for (const event of ["pointerenter", "focus"]) key.addEventListener(event, () => fade(true));
      for (const event of ["pointerleave", "blur"]) key.addEventListener(event, () => fade(false));
    }
  }

  // Explorer: all text goes in as text.
  const carrier = document.getElementById("explorer-data");
  if (!carrier) return;
  const data = JSON.parse(carrier.textContent);
  const [search, history, smoother, order] =
    ["search", "history", "smoother", "order"].map((id) => document.getElementById("explorer-" + id));
  const says = document.getElementById("explorer-says");
  const table = document.getElementById("explorer-table");
  const columns = ["p", "p̃", "p₊", "p₋"];
  const kinds = ["p", "smoothed", "plus", "minus"];

  const make = (name, text, kind) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };
  const fill = (select, entries) => {
    const before = select.value;
    select.replaceChildren(...entries.map(([value, text]) => {
      const option = make("option", text);
      option.value = value;
      return option;
    }));
    if (entries.some(([value]) => value === before)) select.value = before;
  };
  const share = (value) => value === 0 ? "0" : value >= 0.001 ? value.toFixed(4) : value.toExponential(1);
  const percent = (value) => (100 * value).toFixed(1) + " %";

  const bar = (value, most, kind) => {
    const cell = make("td", undefined, "bar-cell");
    const track = make("span", undefined, "track");
    const body = make("span", undefined, "bar " + kind);
    body.style.width = (most > 0 ? 100 * Math.max(0, value) / most : 0).toFixed(2) + "%";
    track.append(body);
    cell.append(track, make("span", share(value), "value"));
    return cell;
  };

  const show = () => {
    const entry = data.histories[Number(history.value)];
    const split = entry.smoothers[smoother.value];
    const name = data.names[smoother.value];
    const column = Number(order.value);
    const words = split.words.slice().sort((a, b) => b[column] - a[column]);
    const rest = [1, 2, 3, 4].map((i) => Math.max(0, 1 - words.reduce((sum, word) => sum + word[i], 0)));
    const largest = (...parts) => Math.max(1e-12, ...words.flatMap((word) => parts.map((i) => word[i])));
    const most = [largest(1, 2), largest(1, 2), largest(3, 4), largest(3, 4)];

    const head = make("tr");
    for (const text of ["word", ...columns]) {
      const cell = make("th", text);
      cell.scope = "col";
      head.append(cell);
    }
    const rows = words.map((word) => {
      const row = make("tr");
      const cell = make("th", word[0]);
      cell.scope = "row";
      row.append(cell, ...kinds.map((kind, i) => bar(word[i + 1], most[i], kind)));
      return row;
    });
    const other = make("tr", undefined, "rest");
    const otherName = make("th", "all other words");
    otherName.scope = "row";
    other.append(otherName, ...rest.map((value) => {
      const cell = make("td", undefined, "bar-cell");
      cell.append(make("span", share(value < 5e-5 ? 0 : value), "value"));
      return cell;
    }));
    const caption = make("caption", "p and p̃ share one scale, p₊ and p₋ another.");
    const top = make("thead"), body = make("tbody");
    top.append(head);
    body.append(...rows, other);
    table.replaceChildren(caption, top, body);
    const seen = entry.count === null ? "" : ", seen " + entry.count.toLocaleString("en") + " times,";
    says.textContent = "After “" + entry.history.join(" ") + "”" + seen + " " + name + " moves Z = " + share(split.z) +
      " of the probability: " + percent(split.z) + " goes from p₋ to p₊.";
  };
  const showSmoothers = () => {
    const entry = data.histories[Number(history.value)];
    fill(smoother, Object.keys(entry.smoothers).map((key) => [key, data.names[key]]));
  };

  const named = data.histories.map((entry, i) => [String(i), entry.history.join(" ") || "(empty)"]);
  const showHistories = () => {
    const wanted = search.value.trim().toLowerCase();
    const found = named.filter(([, text]) => text.toLowerCase().includes(wanted));
    search.setAttribute("aria-invalid", String(found.length === 0));
    if (found.length === 0) {
      says.textContent = "No history holds “" + search.value.trim() + "”. There are " + named.length + ".";
      return;
    }
    fill(history, found);
    showSmoothers();
    show();
  };
  fill(order, columns.map((name, i) => [String(i + 1), name]));
  order.value = "2";
  showHistories();
  search.addEventListener("input", showHistories);
  history.addEventListener("input", () => { showSmoothers(); show(); });
  smoother.addEventListener("input", show);
  order.addEventListener("input", show);
  document.getElementById("explorer-form").addEventListener("submit", (event) => event.preventDefault());
})();
