// Runs a DMN file as its readers would: dmn-moddle reads the XML, feelin each FEEL expression.
//
// In, as JSON: [{"file": path, "rows": [[cell of each input, in the file's order], ...]}, ...]
// where a cell is null, a text or a number.
// Out: for each file and row {"answer": what the decision says, "fits": {decision: rules that fit}}.
import { readFileSync } from "node:fs";
import { DmnModdle } from "dmn-moddle";
import { evaluate, unaryTest } from "feelin";

const known = new Map();
function fits(text, value) {
  if (text === "-") return true;
  const key = JSON.stringify([text, value]);
  if (!known.has(key)) known.set(key, unaryTest(text, { "?": value }).value === true);
  return known.get(key);
}

function variable(name, context) {
  if (name in context) return context[name];
  throw new Error(`there is no ${name}`);
}

const literals = new Map();
function literal(text) {
  if (!literals.has(text)) literals.set(text, evaluate(text, {}).value);
  return literals.get(text);
}

function decided(table, context) {
  const cells = (table.input ?? []).map(
    (input) => variable(input.inputExpression.text, context),
  );
  const found = table.rule.flatMap((rule, at) =>
    (rule.inputEntry ?? []).every((entry, i) => fits(entry.text, cells[i])) ? [at] : [],
  );
  if (table.hitPolicy === "UNIQUE" && found.length > 1) throw new Error(`rules ${found} fit`);
  if (!found.length) return [null, found];
  const said = table.rule[found[0]].outputEntry.map((entry) => literal(entry.text));
  if (said.length === 1) return [said[0], found];
  return [Object.fromEntries(table.output.map((output, i) => [output.name, said[i]])), found];
}

function answer(row, inputs, decisions) {
  const context = {};
  inputs.forEach((input, i) => {
    context[input.variable.name] = row[i];
  });
  const matched = {};
  for (const decision of decisions) {
    const logic = decision.decisionLogic;
    if (logic.$type === "dmn:DecisionTable") {
      [context[decision.name], matched[decision.name]] = decided(logic, context);
    } else {
      context[decision.name] = evaluate(logic.text, context).value;
    }
  }
  return { answer: context.answer, fits: matched };
}

const told = [];
for (const { file, rows } of JSON.parse(readFileSync(0, "utf8"))) {
  const { rootElement, warnings } = await new DmnModdle().fromXML(readFileSync(file, "utf8"));
  if (warnings.length) throw new Error(warnings.map((warning) => warning.message).join("; "));
  const { drgElement: elements } = rootElement;
  const inputs = elements.filter((element) => element.$type === "dmn:InputData");
  const decisions = elements.filter((element) => element.$type === "dmn:Decision");
  known.clear();
  told.push(rows.map((row) => answer(row, inputs, decisions)));
}
process.stdout.write(JSON.stringify(told));
