// Form with one field for each column of a model, validated by the model's policies.
import { el, name, visible } from "./dom.js";
import { number, say } from "./words.js";

const FEW = 12;        // most categories of a selection list; beyond that, they are typed
const OFFERED = 1000;  // most categories suggested while typing
const AT_ONCE = 60;    // most fields shown at once; a search finds the others
const NUMBER = /^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity)$/i;

// Number with few digits in the middle of the model's thresholds, or the first category.
export function sensible(column, dtype) {
  if (column.kind === "nominal") return column.levels[0] ?? null;
  const { low, high } = column;
  if (low == null || high == null) return "0";
  const middle = low / 2 + high / 2, room = high / 2 - low / 2;
  if (!(room > 0)) return number(low, dtype);
  const digits = Math.max(Math.floor(Math.log10(Math.abs(middle) || room)) - Math.floor(Math.log10(room)) + 1, 1);
  return number(Number(middle.toPrecision(Math.min(digits, 17))));
}

export class Form {
  constructor(place, model, changed) {
    this.model = model;
    this.fields = model.columns.map((column, at) => new Field(column, at, model, changed));
    this.byName = new Map(this.fields.map((field) => [field.column.name, field]));
    this.none = document.getElementById("fields-none");
    this.search = document.getElementById("field-search");
    this.search.value = "";
    this.search.parentElement.hidden = this.fields.length <= 12;
    this.search.oninput = () => this.show();
    place.replaceChildren(...this.fields.map((field) => field.node));
    this.show();
  }

  // Show the fields that match the search, at most AT_ONCE of them.
  show() {
    const looked = this.search.value.trim().toLowerCase();
    let shown = 0;
    for (const field of this.fields) {
      const fits = field.column.name.toLowerCase().includes(looked) && shown < AT_ONCE;
      field.node.hidden = !fits && !field.faulty;
      shown += fits;
    }
    this.none.hidden = shown > 0;
  }

  fill(row) {
    for (const field of this.fields) {
      const given = Object.hasOwn(row, field.column.name);
      const text = given ? row[field.column.name] : undefined;
      field.set(typeof text === "string" || text === null ? text : this.usual(field.column.name));
    }
  }

  // Default text of a field.
  usual(column) { return sensible(this.byName.get(column).column, this.model.dtype); }

  // Entered text by column; null if missing.
  texts() {
    return Object.fromEntries(this.fields.map((field) => [field.column.name, field.text()]));
  }

  // Row for the server, or null if a field is invalid.
  row() {
    const cells = this.fields.map((field) => [field.column.name, field.cell()]);
    this.show();
    return this.fields.some((field) => field.faulty) ? null : Object.fromEntries(cells);
  }

  // Find the field of an error message: the longest column name quoted in it.
  blame(message) {
    const named = this.fields.filter(({ column }) =>
      [`'${column.name}'`, `"${column.name}"`].some((text) => message.includes(text)));
    const one = named.sort((a, b) => b.column.name.length - a.column.name.length)[0];
    one?.fault(message);
    this.show();
    return one;
  }

  get firstFault() { return this.fields.find((field) => field.faulty); }

  // Update the texts after a change of language.
  say() { for (const field of this.fields) field.say(); }

  mark(before) {
    for (const field of this.fields) {
      const changed = before !== null && before[field.column.name] !== field.text();
      field.node.classList.toggle("changed", changed);
    }
  }
}

class Field {
  constructor(column, at, model, changed) {
    this.column = column;
    this.id = `field-${at}`;
    this.changed = changed;
    this.dtype = model.dtype;
    this.mayMiss = model.missing !== "error";
    this.mayBeNew = model.unknown !== "error";
    this.faulty = false;
    this.hint = el("p", { class: "hint", id: `${this.id}-hint` });
    this.wrong = el("p", { class: "fault", id: `${this.id}-fault`, hidden: true });
    const label = el("label", { for: this.id }, name(column.name));
    const few = column.kind === "nominal" && column.levels.length <= FEW;
    const parts = few ? this.choice() : this.typed();
    this.node = el("div", { class: "field" }, el("div", { class: "field-head" }, label, this.gone?.parentElement),
      ...parts, this.hint, this.wrong);
    this.input.setAttribute("aria-describedby", `${this.hint.id} ${this.wrong.id}`);
    this.say();
  }

  // Selection list of categories, followed by "missing" and "another value".
  choice() {
    this.options = this.column.levels.map((level, code) => el("option", { value: String(code) }, visible(level)));
    if (this.mayMiss) this.options.push(el("option", { value: "missing" }));
    if (this.mayBeNew) this.options.push(el("option", { value: "other" }));
    this.input = el("select", { id: this.id, onchange: () => this.chose() }, this.options);
    this.other = el("input", { type: "text", class: "other", hidden: true, autocomplete: "off", spellcheck: "false",
      oninput: () => this.heard() });
    return [this.input, this.other];
  }

  // Text input for a number or one of many categories.
  typed() {
    const numeric = this.column.kind !== "nominal";
    const minus = numeric && (this.column.low ?? 0) < 0;  // decimal keyboards of phones have no minus key
    const list = numeric ? null : el("datalist", { id: `${this.id}-list` },
      this.column.levels.slice(0, OFFERED).map((level) => el("option", { value: visible(level, 1000) })));
    this.input = el("input", { id: this.id, type: "text", autocomplete: "off", spellcheck: "false",
      inputmode: numeric && !minus ? "decimal" : "text", list: list?.id, oninput: () => this.typing() });
    if (!numeric) this.levels = new Map(this.column.levels.map((level) => [visible(level, 1000), level]));
    if (this.mayMiss) {
      this.gone = el("input", { type: "checkbox", id: `${this.id}-gone`, onchange: () => this.wentMissing() });
      this.goneText = el("span");
      el("label", { class: "gone" }, this.gone, this.goneText);
    }
    return list ? [this.input, list] : [this.input];
  }

  say() {
    const { low, high, kind, levels } = this.column;
    if (this.other) {
      const [missing, other] = ["missing", "other"].map((value) => this.options.find((one) => one.value === value));
      if (missing) missing.textContent = say("serve_missing");
      if (other) other.textContent = say("serve_other");
      this.other.setAttribute("aria-label", say("serve_other"));
      this.hint.textContent = "";
    } else if (kind === "nominal") {
      this.hint.textContent = say(this.mayBeNew ? "serve_levels_open" : "serve_levels", { count: levels.length });
    } else if (low == null || high == null) {
      this.hint.textContent = say("serve_not_asked");
    } else {
      const [least, most] = [number(low, this.dtype), number(high, this.dtype)];
      this.hint.textContent = say(low === high ? "serve_asked_at" : "serve_asked", { at: least, low: least, high: most });
    }
    if (this.gone) this.goneText.textContent = ` ${say("serve_missing")}`;
    if (this.gone?.checked) this.input.placeholder = say("serve_missing");
  }

  set(text) {
    this.clear();
    if (this.other) {
      const code = this.column.levels.indexOf(text);
      this.input.value = text === null && this.mayMiss ? "missing" : code >= 0 ? String(code)
        : this.mayBeNew && text !== null ? "other" : "0";
      this.other.hidden = this.input.value !== "other";
      this.other.value = this.other.hidden ? "" : text;
      return;
    }
    const gone = text === null && this.mayMiss;
    this.input.value = text === null ? "" : this.levels ? visible(text, 1000) : text;
    if (this.levels && text !== null && !this.levels.has(this.input.value)) this.input.value = text;
    if (this.gone) this.gone.checked = gone;
    this.input.placeholder = gone ? say("serve_missing") : "";
  }

  text() {
    if (this.other) {
      if (this.input.value === "missing") return null;
      return this.input.value === "other" ? this.other.value : this.column.levels[Number(this.input.value)] ?? null;
    }
    if (this.gone?.checked) return null;
    return this.levels?.get(this.input.value) ?? this.input.value;
  }

  // JSON value of the cell; an invalid text is reported at the field.
  cell() {
    this.clear();
    const text = this.text();
    if (text === null) return null;
    if (this.column.kind === "nominal") {
      if (!this.mayBeNew && !this.column.levels.includes(text)) this.fault(say("serve_fault_level"));
      return text;
    }
    const typed = text.trim();
    if (typed === "") this.fault(say(this.mayMiss ? "serve_fault_empty" : "serve_fault_needed"));
    else if (!NUMBER.test(typed)) this.fault(say("serve_fault_number"));
    // JSON has no infinities, but the server also parses numbers in strings.
    return Number.isFinite(Number(typed)) ? Number(typed) : typed;
  }

  fault(message) {
    this.faulty = true;
    this.wrong.textContent = visible(message, 400);
    this.wrong.hidden = false;
    this.input.setAttribute("aria-invalid", "true");
  }

  clear() {
    this.faulty = false;
    this.wrong.hidden = true;
    this.wrong.textContent = "";
    this.input.removeAttribute("aria-invalid");
  }

  chose() {
    this.other.hidden = this.input.value !== "other";
    if (!this.other.hidden) this.other.focus();
    this.changed();
  }

  heard() { this.changed(); }

  // An empty field means a missing value.
  typing() {
    if (this.gone) this.gone.checked = this.input.value.trim() === "";
    this.input.placeholder = this.gone?.checked ? say("serve_missing") : "";
    this.changed();
  }

  wentMissing() {
    if (this.gone.checked) {
      this.kept = this.input.value;
      this.set(null);
    } else {
      this.set(this.kept || sensible(this.column, this.dtype) || "");
      this.input.focus();
    }
    this.changed();
  }
}
