// Explanation: rule, decision path, feature contributions, votes and counterfactuals.
import { bar, el, drawn, find, lever, name, visible } from "./dom.js";
import { labelText } from "./answer.js";
import { number, say, share, signed, told, whole } from "./words.js";

const COLUMNS = 12, CHANGES = 3, LINE = 600, STEPS = 60;

// Split the explanation's text into its parts by their headings.
function partsOf(text, found) {
  const parts = [];
  for (const [line, heading] of text) {
    if (heading) parts.push({ heading: line, lines: [] });
    else if (line.trim()) parts.at(-1)?.lines.push(line.trim());
  }
  const fields = { tree: (found.tree ?? 0) + 1, trees: found.trees };
  const headed = (...texts) => parts.find((part) => texts.includes(part.heading))?.lines ?? [];
  const unseen = found.row.filter((cell) => cell.state === "unseen").length;
  return {
    unseen: text.slice(0, unseen).map(([line]) => line),  // first, before the prediction
    rule: headed(say("explain_rule")),
    way: headed(say("explain_path"), say("explain_path_of", fields)),
    idle: headed(say("explain_not_asked")),
    missing: headed(say("explain_missing")),
  };
}

// Split a line of the text at runs of three or more blanks, except within quoted names.
function columnsOf(line) {
  const cells = [""];
  let quoted = false;
  for (let at = 0; at < line.length; at += 1) {
    const char = line[at];
    if (char === "\\" && quoted) cells[cells.length - 1] += char + (line[at += 1] ?? "");
    else if (!quoted && line.startsWith("   ", at)) {
      cells.push("");
      while (line[at + 1] === " ") at += 1;
    } else {
      if (char === '"') quoted = !quoted;
      cells[cells.length - 1] += char;
    }
  }
  return cells.map((cell) => cell.trim());
}

const STEP = /^(\d+) {2}(.*)$/;
const clipped = (text) => (text.length > LINE ? `${text.slice(0, LINE)}…` : text);

// Prediction of each target.
function thens(says, shares = false) {
  return says.map((said, at) => {
    const answer = el("strong", {}, name(said.label === null ? number(said.value) : labelText(said.label)));
    const part = said.shares.find(([label]) => label === said.label)?.[1];
    return [at ? say("if_comma") : "", told("serve_then", { target: name(said.target), answer }),
      shares && part !== undefined ? ` (${share(part)})` : ""];
  });
}

export function showRule(text, found) {
  const { unseen, rule, way, idle, missing } = partsOf(text, found);
  // The text has no rule where surrogates or a rule list decide: show the conditions on the path.
  const held = way.map((line) => STEP.exec(line)?.[2]).filter(Boolean).map((line) => columnsOf(line)[0]);
  const conditions = rule.length ? rule : found.path.some((step) => step.why === "held") ? held.slice(-1) : held;
  find("rule-part").hidden = found.leaves.length !== 1;
  find("rule-title").textContent = found.trees > 1 ? say("serve_rule_of_tree", { tree: whole(found.tree + 1) }) : say("serve_rule");
  const lines = conditions.map((line) => el("li", {}, el("bdi", {}, clipped(line))));
  const answer = found.leaves[0]?.says ?? [];
  const aside = [[say("explain_missing"), missing], [say("explain_not_asked"), idle]];
  find("rule").replaceChildren(
    ...unseen.map((line) => el("p", { class: "note" }, el("bdi", {}, clipped(line)))),
    el("ul", { class: "clauses" }, lines),
    el("p", { class: "then" }, thens(answer), " ", el("span", { class: "note" }, say("explain_support", { support: number(found.leaves[0]?.support ?? 0) }))),
    ...aside.filter(([, lines]) => lines.length).map(([heading, lines]) =>
      el("p", { class: "note" }, `${heading}: `, lines.map((line) => el("bdi", {}, clipped(line))))),
  );
}

export function showSteps(text, found) {
  const { way } = partsOf(text, found);
  const rows = way.map((line) => {
    const step = STEP.exec(line);
    const [condition, why] = columnsOf(step ? step[2] : line);
    return el("li", { class: step ? "step" : "leaf" }, el("bdi", {}, clipped(condition)),
      why ? el("bdi", { class: "why" }, clipped(why)) : null);
  });
  find("steps").replaceChildren(el("ol", { class: "steps" }, rows.slice(0, STEPS + 12)));
}

// ---------------------------------------------------------------- feature contributions

export function showAdds(found, wanted) {
  const sums = found.sums;
  find("adds-part").hidden = sums.length === 0;
  if (!sums.length) return;
  const best = sums.findIndex((one) => found.says.some((said) => one.target === said.target && one.label === said.label));
  const margin = sums.length === 2 && sums[0].margin ? 1 : best;
  const at = wanted !== null && wanted < sums.length ? wanted : Math.max(margin, 0);
  const choice = find("adds-class");
  find("adds-of").hidden = sums.length < 2;
  const several = found.says.length > 1;
  choice.replaceChildren(...sums.map((one, place) => el("option", { value: String(place) },
    [several || one.label === null ? visible(one.target, 60) : "", one.label === null ? "" : visible(labelText(one.label), 60)]
      .filter(Boolean).join(": "))));
  choice.value = String(at);
  find("adds").replaceChildren(addsNode(sums[at], found.row));
}

function addsNode(one, row) {
  const cells = new Map(row.map((cell) => [cell.column, cell.text]));
  const nonzero = one.numbers.columns.filter(([, value]) => value !== 0);
  const shown = nonzero.slice(0, COLUMNS), others = nonzero.slice(COLUMNS);
  const lines = shown.map(([column, value]) => [name(column, 40), cells.get(column), value]);
  if (others.length) {
    const rest = others.reduce((sum, [, value]) => sum + value, 0);
    lines.push([say("explain_other_columns", { count: others.length }), undefined, rest]);
  }
  const figures = figuresOf(one, [one.numbers.bias, ...lines.map((line) => line[2])]);
  const largest = Math.max(...lines.map((line) => Math.abs(line[2])), 0);
  const head = el("tr", { class: "quiet" }, el("th", { scope: "row" }, say("explain_on_average")), el("td", { class: "cell" }), el("td", { class: "drawn" }),
    el("td", { class: "n" }, figures[0]));
  const rows = lines.map(([label, cell, value], at) => el("tr", {}, el("th", { scope: "row" }, label),
    el("td", { class: "cell" }, cell === undefined ? "" : cell === null ? el("em", {}, say("explain_gone")) : name(cell, 24)),
    el("td", { class: "drawn" }, lever(value, largest)),
    el("td", { class: "n", title: number(value) }, signed(figures[at + 1]))));
  const foot = el("tr", { class: "sum" }, el("th", { scope: "row" }, say("explain_together")), el("td", { class: "cell" }), el("td", { class: "drawn" }),
    el("td", { class: "n", title: number(one.numbers.total) }, figures.at(-1)));
  return el("table", { class: "adds" }, el("caption", { class: "unseen" }, say("serve_adds")), el("tbody", {}, head, rows, foot));
}

// Round running totals, not parts, so that the displayed figures add up to the displayed total.
function figuresOf(one, parts) {
  const largest = Math.max(...parts.map(Math.abs), Math.abs(one.numbers.total));
  const votes = one.label !== null && !one.margin;
  const decimals = largest === 0 ? 0 : votes ? 4 : Math.max(3 - Math.floor(Math.log10(largest)), 0);
  const total = one.numbers.total;
  if (!(largest < 1e15) || decimals > 15) return [...parts, total].map((value) => String(Number(value.toPrecision(6))));
  const scale = 10 ** decimals;
  let running = 0, before = 0;
  const texts = parts.map((part) => {
    running += part;
    const now = Math.round(running * scale), step = now - before;
    before = now;
    return (step / scale).toFixed(decimals);
  });
  return [...texts, total.toFixed(decimals)];
}

// ---------------------------------------------------------------- votes

export function showVotes(found) {
  find("votes-part").hidden = found.votes.length === 0;
  find("votes").replaceChildren(...found.votes.map((votes) => {
    const title = found.votes.length > 1 ? el("h3", {}, name(votes.target)) : null;
    return el("div", {}, title, votes.quantiles.length ? spread(votes.quantiles) : counts(votes.trees, found.trees));
  }));
}

function counts(trees, all) {
  const order = trees.filter(([, count]) => count).sort((a, b) => b[1] - a[1]).slice(0, COLUMNS);
  return el("table", { class: "shares" }, el("caption", { class: "unseen" }, say("serve_votes")),
    el("tbody", {}, order.map(([label, count]) => el("tr", {}, el("th", { scope: "row" }, name(labelText(label), 60)),
      el("td", { class: "drawn" }, bar(count / all)),
      el("td", { class: "n" }, say("serve_votes_of", { count: whole(count), all: whole(all) }))))));
}

function spread(quantiles) {
  const texts = quantiles.map((value) => String(Number(value.toPrecision(6))));
  const [least, lower, middle, upper, most] = texts;
  const [low, high] = [quantiles[0], quantiles[4]];
  const at = (value) => `${high > low ? 2 + ((value - low) / (high - low)) * 96 : 50}%`;
  const wide = high > low ? ((quantiles[3] - quantiles[1]) / (high - low)) * 96 : 0;
  const line = drawn("svg", { class: "spread", height: "22", "aria-hidden": "true" },
    drawn("line", { x1: at(low), x2: at(high), y1: "11", y2: "11" }),
    drawn("rect", { x: at(quantiles[1]), width: `${wide}%`, y: "4", height: "14", rx: "2" }),
    ...[0, 2, 4].map((k) => drawn("line", { class: "tick", x1: at(quantiles[k]), x2: at(quantiles[k]), y1: "2", y2: "20" })));
  return el("div", {}, line, el("p", { class: "note" }, say("explain_quantiles", { least, lower, middle, upper, most })));
}

// ---------------------------------------------------------------- counterfactuals

export function showChange(changes, apply) {
  const place = find("change");
  find("change-part").hidden = !changes;
  if (!changes) return place.replaceChildren();
  const list = [...changes.single.slice(0, CHANGES), ...(changes.pair ? [changes.pair] : [])];
  const notes = [];
  if (changes.met) notes.push(say("serve_change_met"));
  else if (!list.length && changes.complete && !changes.apart) {
    notes.push(say("serve_change_none", { count: say(changes.most === 1 ? "serve_change_one" : "serve_change_two") }));
  }
  if (changes.apart) notes.push(say("serve_change_apart", { count: changes.apart }));
  if (!changes.complete) notes.push(say("serve_change_incomplete"));
  const value = (text) => (text === null ? el("em", {}, say("explain_gone")) : name(text, 40));
  return place.replaceChildren(
    el("ul", { class: "moves changes" }, list.map((change) => el("li", {},
      el("div", {}, change.cells.map((cell) => el("p", {}, told("serve_move",
        { column: name(cell.column), before: value(cell.before), after: value(cell.after) }))),
      el("p", { class: "note" }, thens(change.says, true))),
      el("button", { type: "button", onclick: () => apply(change.cells) }, say("serve_try"))))),
    ...notes.map((note) => el("p", { class: "note" }, note)),
  );
}

// ---------------------------------------------------------------- picture

const PARTS = new Set(["svg", "g", "title", "desc", "rect", "circle", "path", "text", "tspan"]);
const ATTRIBUTES = new Set(["width", "height", "viewBox", "x", "y", "rx", "cx", "cy", "r", "d", "fill", "stroke",
  "stroke-width", "stroke-dasharray", "opacity", "text-anchor", "font-size", "font-weight", "role"]);

// Copy a picture, keeping only elements and attributes without behaviour.
function copied(node) {
  if (!PARTS.has(node.localName)) return null;
  const made = drawn(node.localName);
  for (const { name: attribute, value } of node.attributes) if (ATTRIBUTES.has(attribute)) made.setAttribute(attribute, value);
  for (const child of node.childNodes) {
    const own = child.nodeType === Node.TEXT_NODE ? child.data : child.nodeType === Node.ELEMENT_NODE ? copied(child) : null;
    if (own !== null) made.append(own);
  }
  return made;
}

export function showPicture(picture) {
  const place = find("picture"), made = copied(picture);
  made.style.setProperty("--drawn", `${made.viewBox.baseVal.width}px`);
  place.replaceChildren(made);
  // Scroll to the root, which is on every path.
  const root = made.querySelector("g > rect[stroke-width='3']")?.getBoundingClientRect(), box = place.getBoundingClientRect();
  if (root) place.scrollLeft = root.left + root.width / 2 - box.left - box.width / 2;
}

export function noPicture(key) {
  find("picture").replaceChildren(el("p", { class: "note" }, say(key)));
}
