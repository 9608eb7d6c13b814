// The picture of a time interval: one line of pixels per row of events, which the canvas stretches. A row costs at most
// one search per pixel, independent of the number of events.

const Picture = (() => {
  // Number of shades from an empty pixel to a fully covered one.
  const SHADES = 16;
  // Lowest visible shade: every event shows.
  const LEAST = 5;
  // Number of events of one pixel that are sampled for its colour.
  const ASKED = 4;

  const parts = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const packed = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  const mix = (a, b, share) => a.map((value, at) => Math.round(value + (b[at] - value) * share));

  // Colours of the page by class of event, from its style sheet.
  function colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue("--" + name).trim();
    const names = ["gpu_kernel", "communication", "memory", "gpu_api", "operator", "python", "range", "unresolved", "thread", "range"];
    const ground = parts(of("ground"));
    const shades = names.concat("mark").map((name) => {
      const colour = parts(of(name));
      return Uint32Array.from({ length: SHADES + 1 }, (_, shade) => packed(mix(ground, colour, shade / SHADES)));
    });
    const line = of("line"), ink = of("ink"), faint = of("faint"), mark = of("mark"), onMark = of("on-mark");
    return { shades, names, ground: of("ground"), groundPixel: packed(ground), line, ink, faint, mark, onMark };
  }

  // Draws a row into `pixels` from `offset`, and adds events with room for a name to `named`.
  function paint(row, from, scale, width, pixels, offset, shades, named, namedFrom) {
    const { begin, end, kind, busy, found, count } = row;
    const MARK = shades.length - 1;
    const until = from + width / scale;
    let place = Events.firstAbove(end, from, 0, count);
    let pixel = 0;
    while (place < count && begin[place] < until && pixel < width) {
      const left = (begin[place] - from) * scale;
      const right = (end[place] - from) * scale;
      pixel = Math.max(pixel, Math.floor(left));
      if (pixel >= width) break;
      if (right - pixel >= 2 && right - left >= 2) {
        const last = Math.min(width, Math.round(right));
        const isFound = found && found[place + 1] > found[place];
        const shade = shades[isFound ? MARK : kind[place]];
        pixels.fill(shade[found && !isFound ? 6 : SHADES], offset + pixel, offset + last);
        // A seam between neighbouring events.
        if (last - pixel >= 4 && last < width) pixels[offset + last - 1] = shade[4];
        if (last - pixel >= namedFrom) named.push(row.event[place], pixel, last, !found ? 0 : isFound ? 2 : 1);
        pixel = last;
        place = Events.firstAbove(end, from + pixel / scale, place, count);
      } else {
        // All events of one pixel.
        const moment = from + pixel / scale;
        const next = from + (pixel + 1) / scale;
        let after = Events.firstAbove(begin, next, place, count);
        after = Math.max(after, place + 1);
        let time = busy[after] - busy[place];
        time -= Math.max(0, moment - begin[place]) + Math.max(0, end[after - 1] - next);
        const isFound = found && found[after] > found[place];
        const shade = shades[isFound ? MARK : kind[longest(row, place, after)]];
        const share = Math.min(SHADES, Math.max(LEAST, Math.round(time * scale * SHADES)));
        pixels[offset + pixel] = shade[found && !isFound ? Math.min(share, 6) : share];
        pixel += 1;
        place = end[after - 1] > next ? after - 1 : after;
      }
    }
  }

  function longest(row, from, to) {
    if (to - from === 1) return from;
    const step = Math.ceil((to - from) / ASKED);
    let best = from;
    for (let place = from; place < to; place += step) {
      if (row.end[place] - row.begin[place] > row.end[best] - row.begin[best]) best = place;
    }
    return best;
  }

  // A round distance between two ticks of the axis, at least `least` nanoseconds.
  function distance(least) {
    const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
    return [1, 2, 5, 10].map((times) => times * power).find((each) => each >= least) || 10 * power;
  }

  // Formats a moment, with a precision that matches the tick distance.
  function moment(ns, distance) {
    const [size, unit] = distance < 1e8 ? [1e6, "ms"] : [1e9, "s"];
    const digits = Math.max(0, Math.min(6, Math.ceil(Math.log10(size / Math.max(distance, 1)))));
    return (ns / size).toFixed(digits) + " " + unit;
  }

  return { colours, paint, distance, moment };
})();
