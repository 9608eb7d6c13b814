// Paper has no tabs: before the page is printed, each tab is drawn once and copied below the previous one.

const Print = (() => {
  // Limit on printed rows: more would fill pages that nobody reads.
  const ROWS = 60;

  // Copies the view. Cloning does not copy the pixels of a canvas.
  function copy(view) {
    const made = view.cloneNode(true);
    made.removeAttribute("id");
    made.querySelectorAll("[id]").forEach((element) => element.removeAttribute("id"));
    const from = view.querySelectorAll("canvas");
    made.querySelectorAll("canvas").forEach((canvas, place) => {
      if (from[place].width && from[place].height) canvas.getContext("2d").drawImage(from[place], 0, 0);
    });
    return made;
  }

  // Removes the rows beyond the limit.
  function shorten(part) {
    for (const table of part.querySelectorAll("table")) {
      const more = [...table.rows].slice(ROWS + 1);
      if (more.length === 0) continue;
      more.forEach((row) => row.remove());
      table.after(make("p", "Not printed: " + counted(more.length, "more row") + ".", "empty"));
    }
  }

  function section(title, view) {
    const part = make("section", undefined, "printed");
    part.append(make("h2", title), copy(view));
    shorten(part);
    return part;
  }

  // Sets width and colours of paper while tabs are drawn for printing.
  function paper(on) {
    document.documentElement.classList.toggle("printing", on);
    if (data.hasEvents) Stage.forgetColours();
  }

  // Draws a tab in its current state. Events of a tab that was never opened are still packed, and printing does not
  // wait for them.
  function drawn(tab) {
    if (tab === "timeline" && !Timeline.model()) {
      const note = make("div");
      note.append(make("p", "Single events are printed once their tab has been opened.", "empty"));
      return note;
    }
    state.tab = tab;
    draw();
    if (tab === "timeline") Timeline.draw();
    return byId("view");
  }

  function begin() {
    const shown = state.tab;
    const printed = byId("printed");
    const words = "Metric: " + metric().name + (state.search === null ? "" : " · Search: " + byId("search").value);
    printed.replaceChildren(make("p", words, "empty"));
    paper(true);
    for (const [tab, title] of TABS) printed.append(section(title, drawn(tab)));
    paper(false);
    state.tab = shown;
    draw();
  }

  function end() {
    byId("printed").replaceChildren();
    draw();
  }

  addEventListener("beforeprint", begin);
  addEventListener("afterprint", end);
  return { begin, end };
})();
