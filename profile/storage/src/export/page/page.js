// Draws a profile: flame graphs from the root and from the leaves, tables, losses. All texts come from other processes,
// so they are only ever set as text, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const ROW = 20;
// Findings are shown before the data that they are based on.
const further = (first) => data.tabs.filter((tab) => (tab.id === "findings") === first).map((tab) => [tab.id, tab.title]);
const TABS = further(true)
  .concat([["down", "Top-down"], ["up", "Bottom-up"], ["table", "Table"]])
  .concat(data.hasEvents ? [["timeline", "Timeline"]] : [], further(false), [["losses", "Losses"]]);
// Kinds of frames that share a colour, with their labels.
const LEGEND = [
  [["process", "thread", "root"], "process, thread"], [["python"], "Python"], [["operator"], "operator"], [["layer"], "layer"],
  [["native"], "native"], [["kernel"], "operating system"], [["gpu_api"], "GPU call"], [["gpu_kernel"], "GPU kernel"],
  [["unresolved"], "without a name"],
];
const state = { tab: TABS[0][0], metric: 0, zoom: { down: null, up: null }, search: null, sort: "own", folds: data.folds, opened: null };
const trees = new Map();
let folded = null;

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

// Formats a number for people: three significant figures, or all before the point.
function amount(value, unit) {
  const scales = {
    ns: [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
    bytes: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
    count: [[1, ""]],
  }[unit];
  const [size, name] = scales.find(([size]) => value >= size) || scales[scales.length - 1];
  const scaled = value / size;
  // Four digits and more would become a power of ten: 1.02e+3.
  const shown = size === 1 ? value.toLocaleString("en") : scaled < 999.5 ? scaled.toPrecision(3) : Math.round(scaled).toLocaleString("en");
  return (shown + " " + name).trim();
}

// A number with its noun: `1 row`, `2 rows`.
const counted = (number, noun) => number.toLocaleString("en") + " " + noun + (number === 1 ? "" : "s");

const share = (part, whole) => (whole > 0 ? (part * 100 / whole).toFixed(2) : "0.00") + "%";
const metric = () => data.metrics[state.metric];
const total = () => metric().total;

// A tree node: frame number, own value, value including callees, children, parent.
function node(frame, parent) {
  return { frame, parent, own: 0, all: 0, children: [], depth: parent ? parent.depth + 1 : 0 };
}

const byText = (a, b) => (data.frames[a.frame][0] < data.frames[b.frame][0] ? -1 : 1);

function sumUp(nodes, order) {
  for (let at = nodes.length - 1; at > 0; at--) nodes[at].parent.all += nodes[at].all;
  for (const each of nodes) each.children.sort(order);
  return nodes[0];
}

const BACKWARD = 8;
const isBackward = (frame) => (data.frames[frame][4] & BACKWARD) !== 0;
const isTarget = (frame) => ["process", "thread"].includes(data.frames[frame][1]);

// Nodes in creation order, and a map from the nodes of the profile. For folding, the backward pass is a separate half
// below its process or thread, and so are threads that wait for no call.
function topDown() {
  const nodes = [node(data.nodeFrames[0], null)];
  const below = new Map();
  const child = (parent, frame) => {
    const key = parent.number + " " + frame;
    let made = below.get(key);
    if (!made) {
      below.set(key, made = { ...node(frame, parent), number: nodes.length });
      parent.children.push(made);
      nodes.push(made);
    }
    return made;
  };
  const backward = (operator, frame) => {
    const path = [];
    for (let at = operator; at.parent; at = at.parent) path.unshift(at.frame);
    if (path.some(isBackward)) return child(operator, frame);
    const calls = path.findIndex((of) => !isTarget(of));
    path.splice(calls < 0 ? path.length : calls, 0, frame);
    return path.reduce(child, nodes[0]);
  };
  const [begin, end] = [data.spinning.begin, data.spinning.end].map((of) => new Set(state.folds ? of : []));
  // The node below which a frame stands that begins or ends such a wait, or any other.
  const above = (at) => {
    let outer = placed[data.parents[at]];
    if (begin.has(at)) {
      while (outer.parent && !isTarget(outer.frame)) outer = outer.parent;
      return child(outer, data.spinning.frame);
    }
    if (!end.has(at)) return outer;
    const path = [];
    for (let up = data.parents[at]; up !== 0; up = data.parents[up]) path.unshift(data.nodeFrames[up]);
    return path.reduce(child, nodes[0]);
  };
  nodes[0].number = 0;
  const placed = [nodes[0]];
  for (let at = 0; at < data.parents.length; at++) {
    const frame = data.nodeFrames[at];
    if (at > 0) placed.push((state.folds && isBackward(frame) ? backward : child)(above(at), frame));
    placed[at].own += metric().own[at];
    placed[at].all += metric().own[at];
  }
  return sumUp(nodes, byText);
}

// Every stack from its leaf: the callers of the most expensive functions.
function bottomUp() {
  const root = node(data.nodeFrames[0], null);
  const nodes = [root];
  const places = new Map();
  for (let at = 0; at < data.parents.length; at++) {
    const value = metric().own[at];
    if (value === 0) continue;
    root.own += at === 0 ? value : 0;
    let into = root;
    let depth = 0;
    for (let up = at; up !== 0; up = data.parents[up]) {
      // Deeper callers differ little and would create millions of boxes.
      if (depth++ === 64) break;
      const frame = data.nodeFrames[up];
      let below = places.get(into);
      if (!below) places.set(into, below = new Map());
      let next = below.get(frame);
      if (!next) {
        next = node(frame, into);
        below.set(frame, next);
        into.children.push(next);
        nodes.push(next);
      }
      into = next;
    }
    into.all += into === root ? 0 : value;
    into.own += into === root ? 0 : value;
  }
  root.all += root.own;
  // Most expensive first: that is what users look for here.
  return sumUp(nodes, (a, b) => b.all - a.all || byText(a, b));
}

function tree(tab) {
  const key = [tab, state.metric, state.folds].join(" ");
  if (!trees.has(key)) trees.set(key, tab === "down" ? topDown() : bottomUp());
  return trees.get(key);
}

// The boxes of a tab: its tree, folded, and the box of each node.
function boxes(tab) {
  const root = tree(tab);
  if (!state.folds) return { root, boxOf: null };
  const key = [tab, state.metric, state.search && state.search.source].join(" ");
  if (!folded || folded.key !== key || folded.opened !== state.opened) {
    const keep = (of) => matches(of);
    const options = { frames: data.frames, limits: data.fold, upward: tab === "up", keep, opened: state.opened };
    folded = { key, opened: state.opened, ...Fold.fold(root, options) };
  }
  return folded;
}

function label(of) { return data.frames[of.frame][0]; }
const kindOf = (of) => of.kind || data.frames[of.frame][1];

// The name of a layer without the prefix that it shares with the enclosing layer.
function withinLayer(of) {
  let outer = of.parent;
  while (outer && kindOf(outer) !== "layer") outer = outer.parent;
  if (!outer) return null;
  const [path] = (outer.name || label(outer)).split(" ");
  const name = of.name || label(of);
  return name.startsWith(path + ".") ? "…" + name.slice(path.length) : null;
}

// Label of a box; the full name is in its title, where a search finds it.
function shortLabel(of) {
  const layer = kindOf(of) === "layer" ? withinLayer(of) : null;
  return layer || of.name || data.frames[of.frame][3] || label(of);
}
function matches(of) { return state.search !== null && state.search.test(label(of)); }

// Value of all stacks that contain a match, each counted once.
function matchedValue(root) {
  let sum = 0;
  const open = [root];
  while (open.length) {
    const at = open.pop();
    if (at !== root && matches(at)) sum += at.all;
    else for (const child of at.children) open.push(child);
  }
  return sum;
}

function describe(of) {
  const where = of.name ? "" : data.frames[of.frame][2];
  const name = of.detail || of.name || label(of);
  const each = of.each ? ", each " + of.each.map((value) => share(value, total())).join(" to ") : "";
  const value = amount(of.all, metric().unit) + ", " + share(of.all, total()) + each;
  return name + " (" + value + (where ? ", " + where : "") + ")";
}

// Boxes of a part of a tree from the root down, scaled to their share of `zoom`; `dress` sets the content of each box.
function icicle(frame, zoom, width, children, dress) {
  let deepest = 0;
  const put = (of, left, wide, above) => {
    const box = make("button", "", "box");
    box.type = "button";
    // Relative to the frame, which becomes narrower when a scroll bar appears, and on paper.
    box.style.left = left * 100 / width + "%";
    box.style.width = wide * 100 / width + "%";
    box.style.top = of.depth * ROW + "px";
    if (above) box.classList.add("above");
    dress(box, of, wide);
    if (wide < 12) box.textContent = "";
    box.classList.toggle("narrow", wide < 12);
    deepest = Math.max(deepest, of.depth);
    frame.append(box);
  };
  for (let at = zoom.parent; at; at = at.parent) put(at, 0, width, true);
  const open = [[zoom, 0, width]];
  while (open.length) {
    const [at, left, wide] = open.pop();
    put(at, left, wide, false);
    let x = left;
    for (const child of children(at)) {
      const part = wide * child.all / at.all;
      // Boxes too narrow to see are not created, but keep their space.
      if (part >= 0.7) open.push([child, x, part]);
      x += part;
    }
  }
  frame.style.height = (deepest + 1) * ROW + "px";
}

// Width from which a box shows its share after the name.
const WITH_SHARE = 140;

// Shows a box at full width; siblings joined in one box are listed below their caller.
function zoomTo(tab, root, of) {
  const into = of.each ? of.parent : of;
  if (of.each) state.opened = of.first.parent;
  if (into === root && !of.each) state.opened = null;
  state.zoom[tab] = into === root ? null : into.first || into;
  draw();
}

// Moves the focus to the box that fills the width, since drawing has replaced the box that had it.
function focusZoomed(within) {
  const zoomed = within.querySelector(".box.zoomed");
  if (zoomed) zoomed.focus({ preventScroll: true });
}

const BOX_KEYS = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"];

// The box that a key moves the focus to: the one above, the largest below, or a neighbour; only if it is drawn.
function boxBeside(of, key, isDrawn) {
  if (key === "ArrowUp") return of.parent;
  if (key === "ArrowDown") return of.children.filter(isDrawn).reduce((most, each) => (most && most.all >= each.all ? most : each), null);
  const row = of.parent ? of.parent.children.filter(isDrawn) : [of];
  return row[row.indexOf(of) + (key === "ArrowLeft" ? -1 : 1)];
}

function boxKey(event, of, drawn) {
  if (withModifier(event) || !BOX_KEYS.includes(event.key)) return;
  const next = drawn.get(boxBeside(of, event.key, (each) => drawn.has(each)));
  if (!next) return;
  event.preventDefault();
  next.focus();
}

function flame(tab) {
  const view = byId("view");
  const { root, boxOf } = boxes(tab);
  const wanted = state.zoom[tab];
  let zoom = (boxOf ? boxOf.get(wanted) : wanted) || root;
  if (!root.all) zoom = root;
  const frame = make("div", undefined, "flame");
  view.replaceChildren(frame);
  if (root.all === 0) {
    view.replaceChildren(make("p", "There are no values of this metric.", "empty"));
    byId("details").replaceChildren();
    return;
  }
  const drawn = new Map();
  const show = (of) => { zoomTo(tab, root, of); focusZoomed(view); };
  const explain = (of) => Beside.details(byId("details"), of, tab === "up", show);
  icicle(frame, zoom, frame.clientWidth || view.clientWidth || 1000, (of) => of.children, (box, of, wide) => {
    box.textContent = shortLabel(of) + (wide < WITH_SHARE ? "" : "  " + share(of.all, total()));
    box.style.background = "var(--" + kindOf(of) + ")";
    if (isBackward(of.frame) || of.frame === data.spinning.frame) box.style.backgroundImage = "var(--hatch)";
    if (state.search !== null) box.classList.add(!of.name && matches(of) ? "found" : "dim");
    if (of === zoom) box.classList.add("zoomed");
    box.title = describe(of);
    box.onmouseenter = () => { byId("path").textContent = describe(of); };
    box.onfocus = () => { box.onmouseenter(); explain(of); };
    box.onclick = () => zoomTo(tab, root, of);
    box.onkeydown = (event) => boxKey(event, of, drawn);
    drawn.set(of, box);
  });
  explain(zoom);
}

// Own value by function, and value anywhere on a stack, counted once per stack.
function functions() {
  const rows = new Map();
  const stack = new Map();
  const open = [[tree("down"), false]];
  while (open.length) {
    const [at, leaving] = open.pop();
    const seen = stack.get(at.frame) || 0;
    if (leaving) { stack.set(at.frame, seen - 1); continue; }
    let row = rows.get(at.frame);
    if (!row) rows.set(at.frame, row = { frame: at.frame, own: 0, all: 0 });
    row.own += at.own;
    if (seen === 0) row.all += at.all;
    stack.set(at.frame, seen + 1);
    open.push([at, true]);
    for (const child of at.children) open.push([child, false]);
  }
  const plain = (kind) => kind === "root" || kind === "process" || kind === "thread";
  return [...rows.values()].filter((row) => row.all > 0 && !plain(data.frames[row.frame][1]));
}

function table() {
  let rows = functions();
  if (state.search !== null) rows = rows.filter((row) => state.search.test(data.frames[row.frame][0]));
  const order = {
    own: (a, b) => b.own - a.own || b.all - a.all,
    all: (a, b) => b.all - a.all || b.own - a.own,
    name: (a, b) => (data.frames[a.frame][0] < data.frames[b.frame][0] ? -1 : 1),
  };
  rows.sort(order[state.sort]);
  const out = make("table", undefined, "functions");
  const head = make("tr");
  const heads = [["own", "Self", 1], ["own", "", 1], ["all", "Total", 1], ["all", "", 1], ["name", "Function", 0], [null, "Where", 0]];
  for (const [key, text, number] of heads) {
    const cell = make("th", undefined, number ? "number" : "");
    if (key && text) {
      const button = make("button", text + (state.sort === key ? (key === "name" ? " ▲" : " ▼") : ""));
      button.type = "button";
      button.onclick = () => { state.sort = key; draw(); };
      cell.append(button);
    } else cell.textContent = text;
    head.append(cell);
  }
  out.append(head);
  for (const row of rows.slice(0, 1000)) {
    const [name, kind, where] = data.frames[row.frame];
    const line = make("tr");
    line.append(make("td", share(row.own, total()), "number"), make("td", amount(row.own, metric().unit), "number"));
    line.append(make("td", share(row.all, total()), "number"), make("td", amount(row.all, metric().unit), "number"));
    const cell = make("td", undefined, "name");
    const dot = make("i");
    dot.style.background = "var(--" + kind + ")";
    cell.append(dot, shortLabel(row));
    cell.title = name;
    const place = make("td", withoutMiddle(where), "where");
    place.title = where;
    line.append(cell, place);
    out.append(line);
  }
  const view = byId("view");
  view.replaceChildren(out);
  if (rows.length > 1000) view.append(make("p", "Not listed: " + counted(rows.length - 1000, "more function") + "; search finds them.", "empty"));
  if (rows.length === 0) view.replaceChildren(make("p", "No function matches.", "empty"));
}

function losses() {
  const view = byId("view");
  const words = data.lost.toLocaleString("en") + " of " + counted(data.received, "record") + " lost (" + share(data.lost, data.received) + ")";
  view.replaceChildren(make("p", data.received ? words : "No records were counted."));
  if (data.losses.length === 0) return;
  const out = make("table");
  const head = make("tr");
  head.append(make("th", "Level"), make("th", "Stage"), make("th", "Reason"), make("th", "Count", "number"), make("th", ""), make("th", "Meaning, and what helps"));
  out.append(head);
  for (const [stage, reason, sentence, count, isLost, level, advice] of data.losses) {
    const line = make("tr");
    line.append(make("td", level, "label"), make("td", stage), make("td", reason, "name"), make("td", count.toLocaleString("en"), "number"));
    line.append(make("td", isLost ? "lost" : "gap"), make("td", advice ? sentence + "\n→ " + advice : sentence));
    out.append(line);
  }
  view.append(out);
}

// Shortens a path in the middle, because its ends carry most information.
function withoutMiddle(path) {
  const room = 48;
  if (path.length <= room) return path;
  const [head, tail] = [path.slice(0, 14), path.slice(-(room - 15))];
  // Cuts at whole folders, if there are any.
  const [end, start] = [head.lastIndexOf("/"), tail.indexOf("/")];
  return (end > 0 ? head.slice(0, end + 1) : head) + "…" + (start >= 0 ? tail.slice(start) : tail);
}

// Values over time: one digit and one colour per interval.
function strip(digits) {
  const cell = make("td", undefined, "strip");
  if (digits.length === 0) return cell;
  const width = 100 / digits.length;
  const stops = [...digits].map((digit, at) => {
    const colour = "color-mix(in srgb, var(--mark) " + Math.round(digit * 100 / 9) + "%, var(--line))";
    return colour + " " + (at * width).toFixed(3) + "% " + ((at + 1) * width).toFixed(3) + "%";
  });
  const bar = make("div");
  bar.style.background = "linear-gradient(to right, " + stops.join(", ") + ")";
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", "by time: " + digits);
  cell.append(bar);
  return cell;
}

// Values over time: one height per interval, cut out of a bar.
function curve(heights) {
  const cell = make("td", undefined, "curve");
  if (heights === "") return cell;
  const values = heights.split(" ");
  const width = 100 / values.length;
  const corners = values.map((height, at) => [at, at + 1].map((x) => (x * width).toFixed(3) + "% " + (100 - height) + "%").join(", "));
  const bar = make("div");
  bar.style.clipPath = "polygon(0% 100%, " + corners.join(", ") + ", 100% 100%)";
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", "by time, in percent: " + heights);
  cell.append(bar);
  return cell;
}

const PICTURES = { strip, curve };
// More columns than this leave little room for names on paper.
const WIDE = 8;

// The short name of a kernel, with the full one as its title.
function kernelCell(tab, at, number) {
  const cell = make("td", tab.short[at][number], "name");
  cell.title = tab.rows[number][at];
  return cell;
}

// A table that was computed when the page was written.
function furtherTable(tab) {
  const out = make("table", undefined, tab.columns.length > WIDE ? "wide" : "");
  const head = make("tr");
  for (const column of tab.columns) head.append(make("th", column.title, column.style === "number" ? "number" : ""));
  out.append(head);
  const isShown = (row) => state.search === null || row.some((text) => state.search.test(text));
  const rows = tab.rows.map((row, number) => [row, number]).filter(([row]) => isShown(row));
  for (const [row, number] of rows) {
    const line = make("tr");
    row.forEach((text, at) => {
      const style = tab.columns[at].style;
      if (style === "kernel") line.append(kernelCell(tab, at, number));
      else line.append(style in PICTURES ? PICTURES[style](text) : make("td", text, style));
    });
    out.append(line);
  }
  const view = byId("view");
  view.replaceChildren(out);
  if (tab.left_out > 0) view.append(make("p", "Not listed: " + tab.left_out.toLocaleString("en") + " more; a report with more rows has them.", "empty"));
  if (rows.length === 0) view.append(make("p", "Nothing matches.", "empty"));
}

// Rows with long content, one below the other: a heading, then each value with the title of its column.
function sheets(tab) {
  const rows = state.search === null ? tab.rows : tab.rows.filter((row) => row.some((text) => state.search.test(text)));
  const view = byId("view");
  view.replaceChildren();
  for (const row of rows) {
    const sheet = make("section", undefined, "sheet");
    const list = make("dl");
    row.forEach((text, at) => {
      if (at > 0 && text !== "") list.append(make("dt", tab.columns[at].title), make("dd", text, tab.columns[at].style));
    });
    sheet.append(make("h3", row[0]), list);
    view.append(sheet);
  }
  if (rows.length === 0) view.append(make("p", "Nothing matches.", "empty"));
}

function furtherTab(tab) {
  if (tab.form === "sheets") sheets(tab);
  else furtherTable(tab);
}

// The place of the tab that a key of the list of tabs opens.
const TAB_KEYS = {
  ArrowLeft: (at) => (at + TABS.length - 1) % TABS.length,
  ArrowRight: (at) => (at + 1) % TABS.length,
  Home: () => 0,
  End: () => TABS.length - 1,
};

// Opens a tab, whose name becomes part of the page's address.
function openTab(tab) {
  state.tab = tab;
  try {
    history.replaceState(null, "", "#" + tab);
  } catch (error) {
    // A page within another page may have no address of its own.
  }
  draw();
}

const withModifier = (event) => event.ctrlKey || event.metaKey || event.altKey;

function tabKey(event) {
  if (withModifier(event) || !(event.key in TAB_KEYS)) return;
  event.preventDefault();
  const [tab] = TABS[TAB_KEYS[event.key](TABS.findIndex(([each]) => each === state.tab))];
  openTab(tab);
  byId("tab-" + tab).focus();
}

function draw() {
  const isFlame = ["down", "up"].includes(state.tab);
  const hadFocus = isFlame && document.activeElement && document.activeElement.classList.contains("box");
  for (const [tab] of TABS) {
    const button = byId("tab-" + tab);
    button.setAttribute("aria-selected", String(tab === state.tab));
    // One key leads past the list of tabs; arrows lead through it.
    button.tabIndex = tab === state.tab ? 0 : -1;
  }
  byId("reset").hidden = !state.zoom[state.tab] && !state.opened;
  byId("folding").hidden = !isFlame;
  byId("folds").checked = state.folds;
  byId("path").textContent = "";
  byId("matched").textContent = "";
  document.body.classList.toggle("timeline-open", state.tab === "timeline");
  document.body.classList.toggle("flame-open", isFlame);
  if (state.search !== null && state.tab !== "timeline") {
    const value = matchedValue(tree("down"));
    byId("matched").textContent = "matched: " + share(value, total()) + " (" + amount(value, metric().unit) + ")";
  }
  if (state.tab === "table") table();
  else if (state.tab === "losses") losses();
  else if (state.tab === "timeline") Timeline.show(byId("view"), state.search);
  else if (isFlame) flame(state.tab);
  else furtherTab(data.tabs.find((tab) => tab.id === state.tab));
  if (hadFocus) focusZoomed(byId("view"));
}

function search() {
  const text = byId("search").value;
  state.search = null;
  byId("search").setCustomValidity("");
  if (text !== "") {
    try {
      state.search = new RegExp(text, "i");
    } catch (error) {
      byId("search").setCustomValidity(String(error.message));
      byId("search").reportValidity();
    }
  }
  draw();
}

function setFolds(folds) {
  state.folds = folds;
  state.opened = null;
  draw();
}

function start() {
  document.title = data.target + " – deepctx-bpf";
  byId("target").textContent = data.target;
  byId("facts").textContent = data.facts.join(" · ");
  for (const [tab, text] of TABS) {
    const button = make("button", text);
    button.type = "button";
    button.id = "tab-" + tab;
    button.setAttribute("role", "tab");
    button.setAttribute("aria-controls", "view");
    button.onclick = (event) => {
      openTab(tab);
      // After a click, keys are those of the timeline, not those of the list of tabs. Keys click without detail.
      if (tab === "timeline" && event.detail > 0) byId("view").querySelector("canvas").focus({ preventScroll: true });
    };
    byId("tabs").append(button);
  }
  byId("tabs").onkeydown = tabKey;
  Beside.summary(byId("beside"));
  data.metrics.forEach((each, place) => {
    const option = make("option", each.name + " (" + amount(each.total, each.unit) + ")");
    option.value = String(place);
    byId("metric").append(option);
  });
  byId("metric").onchange = () => {
    state.metric = Number(byId("metric").value);
    state.zoom = { down: null, up: null };
    state.opened = null;
    draw();
  };
  byId("search").oninput = search;
  byId("reset").onclick = () => {
    state.zoom[state.tab] = state.opened = null;
    draw();
    // The button is hidden now.
    focusZoomed(byId("view"));
  };
  byId("folds").onchange = () => setFolds(byId("folds").checked);
  const kinds = new Set(data.frames.map((frame) => frame[1]));
  for (const [shown, word] of LEGEND) {
    if (!shown.some((kind) => kinds.has(kind))) continue;
    const item = make("li");
    const dot = make("i");
    dot.style.background = "var(--" + shown[0] + ")";
    item.append(dot, word);
    byId("legend").append(item);
  }
  addEventListener("keydown", (event) => {
    const letter = withModifier(event) ? "" : event.key;
    if (letter === "/" && document.activeElement !== byId("search")) {
      event.preventDefault();
      byId("search").focus();
    } else if (letter === "z" && !event.target.closest("input, select, .timeline") && ["down", "up"].includes(state.tab)) {
      setFolds(!state.folds);
    } else if (event.key === "Escape") {
      byId("search").value = "";
      state.zoom = { down: null, up: null };
      state.opened = null;
      search();
    }
  });
  addEventListener("resize", draw);
  const wanted = location.hash.slice(1);
  if (TABS.some(([tab]) => tab === wanted)) state.tab = wanted;
  draw();
}

start();
