// What stands beside a flame graph: a summary of the capture, and details of one box. Like all of the page, it only ever
// sets texts.

const Beside = (() => {
  // Limit on rows of a list.
  const LISTED = 12;

  function button(text, title, use) {
    const made = make("button", text);
    made.type = "button";
    made.title = title;
    made.onclick = use;
    return made;
  }

  // Appends a list with a heading, if it has rows; `fill` sets the content of a row.
  function list(into, title, rows, fill) {
    if (rows.length === 0) return;
    const items = make("ol");
    for (const row of rows.slice(0, LISTED)) {
      const item = make("li");
      fill(item, row);
      items.append(item);
    }
    into.append(make("h3", title), items);
    if (rows.length > LISTED) into.append(make("p", "… " + (rows.length - LISTED).toLocaleString("en") + " more", "empty"));
  }

  function rowsOf(id) {
    const tab = data.tabs.find((each) => each.id === id);
    return tab ? tab.rows : [];
  }

  function openFinding(row) {
    openTab("findings");
    const shown = rowsOf("findings").filter((each) => state.search === null || each.some((text) => state.search.test(text)));
    const heading = byId("view").querySelectorAll("h3")[shown.indexOf(row)];
    if (heading) heading.scrollIntoView();
  }

  // Findings, phases and steps: the first things to know of a training. Their columns are those of `analysis`.
  function summary(into) {
    // Sheets without a severity are those of rules that found nothing.
    const findings = rowsOf("findings").filter((row) => row[2] !== "");
    list(into, "Findings", findings, (item, row) => item.append(button(row[0], "Show this finding", () => openFinding(row))));
    list(into, "Phases", rowsOf("phases"), (item, [phase, , part]) => {
      item.append(make("span", phase), make("span", part));
      item.style.background = "linear-gradient(to right, var(--line) " + part + ", transparent 0)";
    });
    const named = (row) => row[row.length - 2];
    list(into, "Training steps, mean", rowsOf("steps"), (item, row) => item.append(make("span", named(row)), make("span", row[1])));
  }

  // Copies a text, if the browser lets the page.
  function copy(text) {
    const said = (words) => () => { made.textContent = words; };
    const made = button("Copy", "Copy name and place", () => navigator.clipboard.writeText(text).then(said("Copied"), said("Not allowed")));
    return made;
  }

  // The full name of a box, its values and its place, and the boxes around it, which `show` zooms to.
  function details(into, of, upward, show) {
    const name = of.detail || of.name || label(of);
    const where = of.name ? "" : data.frames[of.frame][2];
    const facts = make("dl");
    const fact = (title, text) => facts.append(make("dt", title), make("dd", text));
    const value = (number) => amount(number, metric().unit) + ", " + share(number, total());
    fact("Total", value(of.all));
    // From the leaves, a box counts what its leaf took, not what its own code did.
    if (!upward) fact("Self", value(of.own));
    if (where) fact("Where", where);
    into.replaceChildren(make("h2", name), facts);
    if (navigator.clipboard) into.append(copy(where ? name + " " + where : name));
    const above = [];
    for (let at = of.parent; at && (at.parent || at.name); at = at.parent) above.push(at);
    const below = of.children.filter((each) => each.all > 0).sort((a, b) => b.all - a.all);
    const row = (item, each) => item.append(button(shortLabel(each), describe(each), () => show(each)), make("span", share(each.all, total())));
    list(into, upward ? "Calls" : "Called by", above, row);
    list(into, !of.parent ? "Contains" : upward ? "Called by" : "Calls", below, row);
  }

  return { summary, details };
})();
