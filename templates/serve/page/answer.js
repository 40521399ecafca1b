// Prediction with its probabilities, next to the one kept for comparison.
import { bar, el, name } from "./dom.js";
import { number, say, share, signed, told } from "./words.js";

const SHOWN = 12;  // classes, the most probable first

// Predictions of all targets in one format: [{target, label | value, shares: [[label, share]]}].
export function answersOf(model, row) {
  return model.targets.map((target) => {
    const own = row.targets?.[target.name] ?? row;
    if (own.label === undefined) return { target: target.name, value: own.value, shares: [] };
    const given = new Map(Object.entries(own.probabilities));
    const shares = target.classes.map((label) => [label, given.get(label)]);
    return { target: target.name, label: labelText(own.label), shares };
  });
}

// Label as in the schema, with Python's True and False.
export const labelText = (label) => (typeof label === "boolean" ? (label ? "True" : "False") : String(label));

export const plain = (answer) => (answer.label === undefined ? number(answer.value) : answer.label);

// Sentence for screen readers.
export function sentence(answers) {
  return answers.map((one) => (one.label === undefined
    ? say("explain_number", { target: one.target, value: number(one.value) })
    : say("explain_label", { target: one.target, label: one.label, share: share(shareOf(one, one.label)) })))
    .join("; ");
}

const shareOf = (answer, label) => answer.shares.find(([other]) => other === label)?.[1] ?? 0;
const same = (a, b) => plain(a) === plain(b) && a.shares.every(([label, one]) => shareOf(b, label) === one);

export function showAnswers(place, answers, kept) {
  place.replaceChildren(...answers.map((one) => answerNode(one, kept?.find((other) => other.target === one.target))));
}

function answerNode(answer, before) {
  const isNew = before && plain(before) !== plain(answer);
  const said = el("p", { class: "says" }, el("span", { class: "target" }, name(answer.target)),
    isNew ? el("span", { class: "was" }, name(plain(before))) : null,
    isNew ? el("span", { class: "to", "aria-label": say("serve_becomes") }, "→") : null,
    el("strong", { class: "is" }, name(plain(answer))));
  if (answer.label === undefined) {
    const delta = before ? answer.value - before.value : 0;
    return el("div", { class: "one" }, said, before && delta !== 0
      ? el("p", { class: "note delta" }, say("serve_difference", { by: signed(number(delta)) })) : null);
  }
  const order = [...answer.shares].sort((a, b) => b[1] - a[1] || 0);
  const told = answer.shares.length > SHOWN ? order.slice(0, SHOWN) : answer.shares;
  const rows = told.map(([label, value]) => shareRow(label, value, before ? shareOf(before, label) : null,
    label === answer.label));
  const rest = answer.shares.length - told.length;
  return el("div", { class: "one" }, said,
    el("table", { class: "shares" }, el("caption", { class: "unseen" }, say("serve_probabilities")),
      el("tbody", {}, rows)),
    rest ? el("p", { class: "note" }, say("serve_more_classes", { count: rest })) : null);
}

function shareRow(label, value, before, chosen) {
  const moved = before !== null && before !== value;
  return el("tr", { class: chosen ? "chosen" : null }, el("th", { scope: "row" }, name(String(label), 60)),
    el("td", { class: "drawn" }, bar(value, before)),
    el("td", { class: "n", title: number(value) }, share(value)),
    before === null ? null
      : el("td", { class: "n delta", title: moved ? number(value - before) : null },
        moved ? signed((value - before).toFixed(4)) : "="));
}

// Show differences from the kept row and prediction.
export function showCompared(place, kept, row, answers) {
  place.hidden = kept === null;
  if (kept === null) return;
  const changed = Object.keys(row).filter((column) => row[column] !== kept.row[column]);
  const value = (text) => (text == null ? el("em", {}, say("serve_missing")) : name(text, 60));
  const unchanged = answers.every((one) => kept.answers.some((other) => other.target === one.target && same(one, other)));
  const verdict = changed.length === 0 ? "serve_compare_start" : unchanged ? "serve_compare_same" : "serve_compare_other";
  place.replaceChildren(el("p", { class: "note" }, say(verdict)),
    changed.length ? el("ul", { class: "moves" }, changed.slice(0, 40).map((column) => el("li", {},
      told("serve_move", { column: name(column), before: value(kept.row[column]), after: value(row[column]) })))) : "");
}
