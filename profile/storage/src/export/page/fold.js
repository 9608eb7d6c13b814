"use strict";
// Folds a tree of boxes: trunks, wrappers and siblings that differ by a number, like the terminal view and the timeline
// picture. `profile/src/view/fold` defines wrappers and the siblings that may be joined. Changes no value: the value of
// an omitted box is counted as its caller's.

const Fold = (() => {
  const WRAPPER = 1;
  const JOINED = 2;
  const HEADING = 4;
  const LISTED = 4;
  const NUMBER = /(?<![\p{L}\p{N}_])[0-9]+(?![\p{L}\p{N}_])/gu;

  const sum = (nodes, of) => nodes.reduce((total, node) => total + of(node), 0);
  const all = (nodes) => sum(nodes, (node) => node.all);
  const byText = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

  // Formats ascending numbers as ranges: `{0..11}`.
  function set(numbers) {
    const sorted = [...new Set(numbers)].sort((a, b) => a.length - b.length || byText(a, b));
    if (sorted.length === 1) return sorted[0];
    const follow = sorted.every((number, at) => at === 0 || BigInt(number) === BigInt(sorted[at - 1]) + 1n);
    const ends = "{" + sorted[0] + ".." + sorted[sorted.length - 1] + "}";
    return sorted.length > LISTED || (sorted.length > 2 && follow) ? ends : "{" + sorted.join(",") + "}";
  }

  // Common name of several siblings that differ only by numbers.
  function joinedName(names) {
    const numbers = names.map((name) => name.match(NUMBER));
    let at = 0;
    return names[0].replace(NUMBER, () => { const place = at++; return set(numbers.map((of) => of[place])); }) + " ×" + names.length;
  }

  // `root` is the original tree, `frames` its frame table, `limits` the bounds of folding. If the tree is `upward`,
  // functions stay boxes above their folded callers. `keep` selects boxes that must stay; callees of `opened` are not
  // joined. Returns the root of the boxes, and the box of each node.
  function fold(root, { frames, limits, upward, keep, opened }) {
    const name = (node) => frames[node.frame][0];
    const kind = (node) => frames[node.frame][1];
    const flags = (node) => frames[node.frame][4];
    const boxOf = new Map();
    const kept = (node) => keep(node) || (upward && node.parent === root);
    const same = (value, whole) => value > 0 && value * 100 >= whole * limits.samePercent;

    function isLeftOut(node) {
      const handsOn = upward || node.own <= Math.floor(node.all / 2);
      return handsOn && (flags(node) & WRAPPER) !== 0 && !kept(node);
    }

    function byName(nodes) {
      const named = new Map();
      for (const node of nodes) {
        const key = kind(node) + " " + name(node);
        const of = named.get(key);
        if (of) of.nodes.push(node);
        else named.set(key, { nodes: [node], joined: false });
      }
      const boxes = [...named.values()];
      return upward ? boxes.sort((a, b) => all(b.nodes) - all(a.nodes)) : boxes.sort((a, b) => byText(name(a.nodes[0]), name(b.nodes[0])));
    }

    function byNumber(boxes) {
      const places = new Map();
      const out = [];
      for (const of of boxes) {
        const [first] = of.nodes;
        const may = (flags(first) & JOINED) !== 0 && !kept(first) && opened !== first.parent;
        const pattern = may && name(first).search(NUMBER) >= 0 ? kind(first) + " " + name(first).replace(NUMBER, "#") : null;
        const there = pattern === null ? undefined : places.get(pattern);
        if (there) {
          for (const node of of.nodes) there.nodes.push(node);
          there.joined = true;
        } else {
          const made = { nodes: [...of.nodes], joined: false };
          if (pattern !== null) places.set(pattern, made);
          out.push(made);
        }
      }
      return out;
    }

    // The callees of nodes without wrappers, and the value of the omitted wrappers.
    function callees(nodes) {
      const found = [];
      let own = 0;
      const left = [];
      const open = nodes.map((node) => [node, true]).reverse();
      while (open.length) {
        const [node, isBox] = open.pop();
        if (!isBox && !isLeftOut(node)) {
          found.push(node);
          continue;
        }
        if (!isBox) {
          own += node.own;
          left.push(node);
        }
        for (let at = node.children.length - 1; at >= 0; at--) open.push([node.children[at], false]);
      }
      return { boxes: byNumber(byName(found)), own, left };
    }

    const mayBeInTrunk = (of) => !of.joined && !(upward && of.nodes[0] === root) && !kept(of.nodes[0]);

    // `first` and the boxes below it with the same value, as far as they may share one box.
    function trunk(first) {
      const whole = all(first.nodes);
      const chain = [{ of: first, below: callees(first.nodes) }];
      for (;;) {
        const last = chain[chain.length - 1];
        if (!mayBeInTrunk(last.of)) return chain;
        const next = last.below.boxes.findIndex((box) => same(all(box.nodes), whole) && mayBeInTrunk(box));
        if (next < 0) return chain;
        const [of] = last.below.boxes.splice(next, 1);
        chain.push({ of, below: callees(of.nodes) });
      }
    }

    const nameOf = (of) => (of.joined ? joinedName([...new Set(of.nodes.map(name))].sort(byText)) : name(of.nodes[0]));

    // Label of a folded chain: its headings, the names nearest to its end (code of the program before native code) and
    // its last name; plus the number of frames if some are not named.
    function chainName(chain) {
      const work = ({ of: { nodes: [node] } }) => ["python", "operator", "layer", "gpu_kernel"].includes(kind(node)) && !(flags(node) & WRAPPER);
      const begin = chain.findIndex(({ of: { nodes: [node] } }) => !(flags(node) & HEADING));
      const calls = begin < 0 ? [] : chain.slice(begin);
      const parts = chain.slice(0, chain.length - calls.length).map(({ of }) => nameOf(of));
      const telling = calls.some(work) ? calls.filter((link, at) => work(link) || (at + 1 === calls.length && !upward)) : calls;
      const few = upward ? telling.slice(0, limits.named) : telling.slice(-limits.named);
      const short = ({ of }) => frames[of.nodes[0].frame][3] || nameOf(of);
      const named = few.map(short).join(" → ");
      if (calls.length) parts.push(few.length === calls.length ? named : "… " + calls.length + " frames: " + named);
      return parts.join(" → ");
    }

    function box(of, parent) {
      const [first] = of.nodes;
      const links = trunk(of);
      const made = { frame: first.frame, parent, own: 0, all: all(of.nodes), children: [], depth: parent ? parent.depth + 1 : 0, first };
      made.own = sum(links, (link) => sum(link.of.nodes, (node) => node.own) + link.below.own);
      const [last] = links[links.length - 1].of.nodes;
      if (links.length >= limits.least) {
        const named = links.slice(first === root ? 1 : 0);
        made.name = chainName(named);
        made.detail = named.map((link) => nameOf(link.of)).join(" → ");
        made.kind = kind(upward ? first : last);
      } else if (of.joined) {
        const each = new Map();
        for (const node of of.nodes) each.set(name(node), (each.get(name(node)) || 0) + node.all);
        made.name = nameOf(of);
        // Not as arguments of one call, whose number is limited.
        made.each = [Math.min, Math.max].map((most) => [...each.values()].reduce((a, b) => most(a, b)));
      }
      for (const { of: { nodes }, below } of links) for (const node of nodes.concat(below.left)) boxOf.set(node, made);
      return [made, links.flatMap((link) => link.below.boxes)];
    }

    const [top, first] = box({ nodes: [root], joined: false }, null);
    const open = [[top, first]];
    while (open.length) {
      const [parent, boxes] = open.pop();
      for (const of of boxes) {
        const [made, below] = box(of, parent);
        parent.children.push(made);
        if (below.length) open.push([made, below]);
      }
    }
    return { root: top, boxOf };
  }

  return { fold };
})();
