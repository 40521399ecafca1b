// State of the page: model, row, prediction, and the order of requests to the server.
import { el, find, name, visible } from "./page/dom.js";
import { language, learn, pictures, preferred, say, speak, whole, number } from "./page/words.js";
import { Refused, ask, picture, useToken } from "./page/server.js";
import { Form } from "./page/form.js";
import { answersOf, sentence, showAnswers, showCompared } from "./page/answer.js";
import { noPicture, showAdds, showChange, showPicture, showRule, showSteps, showVotes } from "./page/reasons.js";
import { Rules } from "./page/rules.js";

const TYPING = 250, LATER = 500, SETTLED = 1000;         // ms before a prediction, the counterfactual search and a reload
const LONGEST_LINK = 6000, MANY_MODELS = 12, FEW_VALUES = 30;

const state = { models: [], model: null, form: null, tree: 1, kept: null, answers: null, row: null, said: null, sum: null };
let running = new AbortController(), timer = 0, linkTimer = 0, renewed = 0;
const rules = new Rules((error) => fail(error));

// ---------------------------------------------------------------- models

const keyOf = (model) => JSON.stringify([model.version, model.state]);
const current = () => state.models.find((model) => model.name === state.model?.name);

async function readModels() {
  state.models = await ask("models");
  showModels();
}

function showModels() {
  find("models").hidden = state.models.length < 2;
  find("model-find").hidden = state.models.length <= MANY_MODELS;
  const looked = find("model-search").value.trim().toLowerCase();
  find("model-list").replaceChildren(...state.models.filter((model) => model.name.toLowerCase().includes(looked)).slice(0, 200)
    .map((model) => el("li", {}, el("a", { href: `#${new URLSearchParams({ model: model.name })}`,
      "aria-current": model.name === state.model?.name ? "true" : null },
      el("strong", {}, name(model.name, 60)), el("span", { class: "note" }, gist(model))))));
}

function gist(model) {
  if (model.state !== "READY") return say("serve_state_off");
  const targets = model.targets.map((target) => visible(target.name, 30)).join(", ");
  return say(model.trees > 1 ? "serve_gist_forest" : "serve_gist_tree",
    { target: targets, columns: whole(model.columns.length), trees: whole(model.trees), leaves: whole(model.leaves) });
}

function showModel(model) {
  state.model = model;
  document.title = `${visible(model.name, 60)} · treekit`;
  find("empty").hidden = true;
  find("model").hidden = false;
  find("name").replaceChildren(name(model.name));
  showFacts(model);
  showModels();
  const ready = model.state === "READY";
  find("work").hidden = find("rules-part").hidden = find("schema").hidden = !ready;
  find("off").hidden = ready;
  find("way-part").hidden = true;
  find("trouble").hidden = true;
  return ready ? showSchema(model) : showOff(model);
}

function showFacts(model) {
  const facts = [[say("serve_fact_version"), visible(String(model.version ?? ""), 30)]];
  if (model.state === "READY") {
    const targets = model.targets.map((target) => [name(target.name, 60),
      target.classes?.length ? el("span", { class: "note" }, " ", target.classes.slice(0, 8).map((label, at) => [at ? ", " : "", name(String(label), 30)]),
        target.classes.length > 8 ? ` ${say("explain_more", { count: target.classes.length - 8 })}` : "") : null]);
    facts.push([say(targets.length > 1 ? "serve_fact_targets" : "serve_fact_target"),
      targets.map((parts, at) => el("span", { class: "part" }, at ? "" : null, parts))],
    [say("serve_fact_columns"), whole(model.columns.length)],
    [say("serve_fact_size"), say(model.trees > 1 ? "serve_size_forest" : "serve_size_tree",
      { trees: whole(model.trees), leaves: whole(model.leaves), depth: whole(model.depth) })],
    [say("serve_fact_missing"), say(`serve_missing_${model.missing}`)],
    [say("serve_fact_unknown"), say(`serve_unknown_${model.unknown}`)]);
  }
  find("facts").replaceChildren(...facts.map(([term, what]) => el("div", {}, el("dt", {}, term), el("dd", {}, what))));
}

function showOff(model) {
  find("off").replaceChildren(el("h2", {}, say("serve_state_off")), el("p", {}, say("serve_off")),
    model.reason ? el("p", { class: "note" }, visible(model.reason, 600)) : "");
}

function showSchema(model) {
  find("schema-rows").replaceChildren(...model.columns.slice(0, 2000).map((column) => el("tr", {},
    el("th", { scope: "row" }, name(column.name)),
    el("td", {}, say(column.kind === "nominal" ? "serve_kind_nominal" : "serve_kind_numeric", { dtype: model.dtype })),
    el("td", {}, valuesOf(column)))));
}

function valuesOf(column) {
  if (column.kind === "nominal") {
    const shown = column.levels.slice(0, FEW_VALUES).map((level, at) => [at ? ", " : "", name(level, 40)]);
    return [shown, column.levels.length > FEW_VALUES ? ` ${say("explain_more", { count: column.levels.length - FEW_VALUES })}` : ""];
  }
  if (column.low == null || column.high == null) return say("serve_not_asked");
  const [low, high] = [column.low, column.high].map((value) => number(value, state.model.dtype));
  return say(low === high ? "serve_asked_at" : "serve_asked", { at: low, low, high });
}

// ---------------------------------------------------------------- address

function link() {
  clearTimeout(linkTimer);
  const before = location.hash;
  linkTimer = setTimeout(() => {
    if (location.hash !== before) return;  // the user navigated: "hashchange" follows
    const parts = new URLSearchParams({ model: state.model.name, lang: language() });
    if (state.tree !== 1) parts.set("tree", String(state.tree));
    if (state.form) {
      const own = Object.entries(state.form.texts()).filter(([column, text]) => text !== state.form.usual(column));
      parts.set("row", JSON.stringify(Object.fromEntries(own)));
    }
    if (String(parts).length > LONGEST_LINK) parts.delete("row");
    history.replaceState(null, "", `#${parts}`);
  }, 100);
}

function linked() {
  const parts = new URLSearchParams(location.hash.slice(1));
  let row = {};
  try { row = JSON.parse(parts.get("row") ?? "{}"); } catch { /* an invalid, hand-edited address */ }
  return { model: parts.get("model"), lang: parts.get("lang"), tree: Number(parts.get("tree") ?? 1),
    row: row !== null && typeof row === "object" ? row : {} };
}

function follow() {
  clearTimeout(linkTimer);
  const asked = linked();
  if (asked.lang !== null && asked.lang !== language()) chooseLanguage(preferred(asked.lang), false);
  const ready = state.models.find((model) => model.state === "READY") ?? state.models[0];
  const model = asked.model === null ? ready : state.models.find((one) => one.name === asked.model);
  if (!model) {
    state.model = null;
    find("model").hidden = true;
    find("empty").hidden = false;
    find("empty").textContent = state.models.length ? say("serve_no_such", { model: visible(asked.model ?? "", 80) }) : say("serve_no_models");
    return showModels();
  }
  return open(model, asked.row, asked.tree);
}

function open(model, row, tree = 1) {
  running.abort();
  Object.assign(state, { form: null, kept: null, answers: null, said: null, sum: null });
  state.tree = Number.isInteger(tree) && tree >= 1 && tree <= (model.trees ?? 1) ? tree : 1;
  showModel(model);
  for (const part of ["rule-part", "change-part", "adds-part", "votes-part"]) find(part).hidden = true;
  find("answer").replaceChildren();
  markStale(null);
  showKept();
  if (model.state !== "READY") return;
  state.form = new Form(find("fields"), model, later);
  state.form.fill(row);
  find("tree").value = String(state.tree);
  find("tree").max = String(model.trees);
  find("trees").textContent = say("serve_of_trees", { trees: whole(model.trees) });
  find("tree-of").hidden = model.trees < 2;
  find("view").value = matchMedia("(max-width: 44rem)").matches ? "way" : "auto";
  rules.show(model);
  predict();
}

// ---------------------------------------------------------------- predictions

function later() {
  clearTimeout(timer);
  timer = setTimeout(predict, TYPING);
}

const pause = (ms, signal) => new Promise((resolve, reject) => {
  const end = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(end); reject(new DOMException("", "AbortError")); });
});

const busy = (...parts) => parts.forEach((part) => find(part).setAttribute("aria-busy", "true"));
const done = (...parts) => parts.forEach((part) => find(part).removeAttribute("aria-busy"));

async function predict() {
  clearTimeout(timer);
  running.abort();
  const { signal } = running = new AbortController();
  const { model, form } = state;
  const row = form.row();
  form.mark(state.kept?.row ?? null);
  if (row === null) {
    done("work", "rule-part", "change-part");
    find("said").textContent = say("serve_fault_somewhere");
    markStale("serve_stale_fault");
    return;
  }
  link();
  busy("work", "rule-part", "change-part");
  find("waiting").hidden = state.said !== null;
  try {
    const said = await ask("predict", { body: { model: model.name, rows: [row] }, signal });
    if (isOther(said.version)) return await anew();
    find("trouble").hidden = true;
    markStale(null);
    state.answers = answersOf(model, said.rows[0]);
    state.row = form.texts();
    find("said").textContent = sentence(state.answers);
    showKept();
    done("work");
    await explain(row, signal);
  } catch (error) {
    fail(error);
  } finally {
    if (!signal.aborted) {
      done("work", "rule-part", "change-part");
      find("waiting").hidden = true;
    }
  }
}

// Dim what is shown of an earlier row, with the reason; null: it is that of the present row.
function markStale(reason) {
  const stale = reason !== null && state.answers !== null;
  find("found").classList.toggle("stale", stale);
  find("stale").hidden = !stale;
  find("stale").textContent = stale ? say(reason) : "";
}

async function explain(row, signal) {
  const { model } = state;
  const body = { model: model.name, row, lang: language(), tree: state.tree, changes: 0 };
  const said = await ask("explain", { body, signal });
  if (isOther(said.version)) return anew();
  state.said = said;
  showReasons();
  done("rule-part");
  const drawing = draw(signal);
  if (!said.explainers.includes("counterfactuals")) {
    showChange(null);
    return drawing;
  }
  await pause(LATER, signal);
  const more = await ask("explain", { body: { ...body, changes: 2 }, signal });
  if (isOther(more.version)) return anew();
  state.said = more;
  showChange(more.explanation.counterfactuals, tryOut);
  await drawing;
  return undefined;
}

function showReasons() {
  find("waiting").hidden = true;
  const { text, explanation } = state.said;
  showRule(text, explanation);
  showAdds(explanation, state.sum);
  showVotes(explanation);
  find("way-part").hidden = explanation.tree === null;
  showSteps(text, explanation);
}

async function draw(signal) {
  if (!pictures) return;
  const { version, explanation } = state.said;
  const leaves = explanation.leaves.map((leaf) => leaf.node).slice(0, 300);
  const query = new URLSearchParams({ tree: String(state.tree), lang: language(), version, view: find("view").value, path: leaves.join(",") });
  try {
    showPicture(await picture(`models/${encodeURIComponent(state.model.name)}/tree.svg?${query}`, signal));
  } catch (error) {
    if (error.name !== "AbortError") noPicture(error.status === 413 ? "serve_picture_large" : "serve_picture_none");
  }
}

// ---------------------------------------------------------------- replaced and unloaded models

const isOther = (version) => version !== state.model.version;

// Reload a replaced model's schema, keeping the row's values that still fit.
async function anew() {
  const before = state.model, texts = state.form?.texts() ?? {};
  // Workers of one server may switch versions one after another: limit the reload rate.
  if (Date.now() - renewed < 2 * SETTLED) await new Promise((go) => { setTimeout(go, SETTLED); });
  renewed = Date.now();
  await readModels();
  const model = current();
  if (!model) {
    find("model").hidden = true;
    find("empty").hidden = false;
    find("empty").textContent = say("serve_unloaded", { model: visible(before.name, 80) });
    return;
  }
  open(model, texts, state.tree);
  find("changed").hidden = false;
  find("changed").textContent = model.state === "READY"
    ? say("serve_changed", { before: visible(before.version, 30), after: visible(model.version, 30) })
    : say("serve_unloaded", { model: visible(before.name, 80) });
}

async function lookAgain() {
  if (document.visibilityState !== "visible" || !state.model) return;
  try {
    const before = keyOf(state.model);
    await readModels();
    const model = current();
    if (!model || keyOf(model) !== before) await anew();
  } catch { /* the next request reports the error */ }
}

// ---------------------------------------------------------------- errors

async function fail(error) {
  if (error.name === "AbortError") return;
  if (!(error instanceof Refused)) throw error;
  if (error.status === 401) return askToken();
  const again = el("button", { type: "button", onclick: retry }, say("serve_again"));
  const message = el("bdi", {}, visible(error.message, 600));
  find("said").textContent = "";
  find("loading").hidden = true;
  markStale("serve_stale_error");
  if (error.status === 0) return complain(el("p", {}, say("serve_gone")), again);
  if ((error.status === 503 || error.status === 404) && await wentAway()) return undefined;
  if (error.status === 429 || error.status === 503) {
    const wait = error.after ? say("serve_busy_after", { seconds: error.after }) : say("serve_busy");
    return complain(el("p", {}, wait, " ", message), again);
  }
  const field = error.status === 400 ? state.form?.blame(error.message) : null;
  return complain(el("p", {}, say("serve_refused"), " ", message), field
    ? el("button", { type: "button", onclick: () => field.input.focus() }, say("serve_to_field")) : again);
}

function complain(...parts) {
  find("trouble").replaceChildren(...parts);
  find("trouble").hidden = false;
}

// Whether the model was unloaded or replaced since the form was built.
async function wentAway() {
  const before = state.model;
  if (!before) return false;
  try { await readModels(); } catch { return false; }
  const model = current();
  if (model && keyOf(model) === keyOf(before)) return false;
  await anew();
  return true;
}

function retry() {
  find("trouble").hidden = true;
  return state.models.length ? state.form && predict() : start();
}

function askToken() {
  find("loading").hidden = true;
  find("token").hidden = false;
  find("trouble").hidden = true;
  find("token-text").focus();
}

// ---------------------------------------------------------------- comparison

function showKept() {
  showAnswers(find("answer"), state.answers ?? [], state.kept?.answers ?? null);
  showCompared(find("compared"), state.kept, state.row ?? {}, state.answers ?? []);
  find("pin").hidden = state.kept !== null || !state.answers;
  find("back").hidden = find("unpin").hidden = state.kept === null;
  state.form?.mark(state.kept?.row ?? null);
}

function keep(row, answers) {
  state.kept = row === null ? null : { row, answers };
  showKept();
}

function tryOut(cells) {
  if (state.kept === null) keep(state.row, state.answers);
  for (const cell of cells) state.form.byName.get(cell.column)?.set(cell.after);
  predict();
}

// ---------------------------------------------------------------- languages

function chooseLanguage(code, anew = true) {
  speak(code);
  for (const button of find("languages").children) button.setAttribute("aria-pressed", String(button.lang === code));
  if (!anew || !state.model) return;
  state.form?.say();
  showModel(state.model);
  find("trees").textContent = say("serve_of_trees", { trees: whole(state.model.trees ?? 0) });
  if (!state.form) return;
  rules.load(rules.first);
  predict();
  link();
}

function showLanguages(codes) {
  find("languages").replaceChildren(...codes.map((code) => el("button", { type: "button", lang: code,
    onclick: () => chooseLanguage(code) }, say("serve_language", {}, code))));
}

// ---------------------------------------------------------------- start

async function start() {
  try {
    await readModels();
    find("token").hidden = find("loading").hidden = true;
    follow();
  } catch (error) { fail(error); }
}

function listen() {
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    predict().then(() => state.form.firstFault?.input.focus());
    if (matchMedia("(max-width: 59.99rem)").matches && !state.form.firstFault) find("answer-title").scrollIntoView();
  });
  find("reset").addEventListener("click", () => { state.form.fill({}); predict(); });
  find("pin").addEventListener("click", () => { keep(state.row, state.answers); find("back").focus(); });
  find("unpin").addEventListener("click", () => { keep(null); find("pin").focus(); });
  find("back").addEventListener("click", () => { state.form.fill(state.kept.row); predict(); });
  find("adds-class").addEventListener("change", () => {
    state.sum = Number(find("adds-class").value);
    showAdds(state.said.explanation, state.sum);
  });
  find("tree").addEventListener("input", () => {
    const tree = Number(find("tree").value);
    if (!Number.isInteger(tree) || tree < 1 || tree > state.model.trees) return;
    state.tree = tree;
    later();
  });
  find("view").addEventListener("change", () => { if (state.said) draw(running.signal); });
  find("model-search").addEventListener("input", showModels);
  find("token").addEventListener("submit", (event) => {
    event.preventDefault();
    useToken(find("token-text").value);
    find("token-text").value = "";
    find("token").hidden = true;
    start();
  });
  find("skip").addEventListener("click", (event) => {  // the fragment holds the model and its row
    event.preventDefault();
    find("main").focus();
  });
  addEventListener("hashchange", follow);
  document.addEventListener("visibilitychange", lookAgain);
}

showLanguages(await learn());
for (const id of ["view-of", "picture"]) find(id).hidden = !pictures;
chooseLanguage(preferred(linked().lang), false);
listen();
start();
