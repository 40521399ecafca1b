// DOM elements.  Untrusted names are inserted as text only, never as markup.
export const find = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child != null));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Bar of a share between 0 and 1, with the difference from its previous value, if any.
export function bar(share, before = null) {
  const part = (value) => `${Math.min(Math.max(value, 0), 1) * 100}%`;
  const parts = [drawn("rect", { class: "track", width: "100%", height: "10", rx: "2" }),
    drawn("rect", { class: "fill", width: part(share), height: "10", rx: "2" })];
  if (before !== null) {
    const [low, high] = [Math.min(share, before), Math.max(share, before)];
    parts.push(drawn("rect", { class: share < before ? "lost" : "won", x: part(low),
      width: part(high - low), height: "10" }));
  }
  return drawn("svg", { class: "bar", height: "10", "aria-hidden": "true" }, ...parts);
}

// Bar from the middle to the right or left, relative to the largest value.
export function lever(value, largest) {
  const share = largest > 0 ? Math.min(Math.abs(value) / largest, 1) * 50 : 0;
  return drawn("svg", { class: "bar lever", height: "12", "aria-hidden": "true" },
    drawn("rect", { class: value < 0 ? "less" : "more", x: `${value < 0 ? 50 - share : 50}%`,
      width: `${share}%`, height: "12", rx: "1.5" }),
    drawn("line", { x1: "50%", x2: "50%", y1: "0", y2: "12" }));
}

const LONGEST = 120;
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]|[^\S ]/gu;
const code = (char) => {
  const hex = char.codePointAt(0).toString(16);
  return hex.length > 4 ? `\\U${hex.padStart(8, "0")}` : `\\u${hex.padStart(4, "0")}`;
};

// Escape unprintable characters, and quote texts that could be mistaken for others.
export function visible(text, most = LONGEST) {
  const chars = text.length > most ? [...text.slice(0, 2 * most)] : [...text];
  const cut = chars.length > most ? `${chars.slice(0, most - 1).join("")}…` : text;
  const plain = cut.replace(HIDDEN, code);
  const odd = plain !== cut || cut !== cut.trim() || cut.includes("  ") || !cut;
  return odd ? `"${plain}"` : plain;
}

// Name with isolated text direction.
export function name(text, most = LONGEST) {
  const shown = visible(text, most);
  const all = visible(text, 1000);
  // Long names break after their separators first.
  const parts = shown.split(/(?<=[_.:/-])/u).flatMap((part, at) => (at ? [el("wbr"), part] : [part]));
  return el("bdi", { class: "name", title: shown === all ? null : all }, parts);
}
