// Rule list of a model, searched and paged by the server.
import { el, find, visible } from "./dom.js";
import { language, number, say, whole } from "./words.js";
import { ask } from "./server.js";

const COUNT = 10, WAIT = 250, LINE = 600, CONDITIONS = 60;

export class Rules {
  constructor(failed) {
    this.failed = failed;
    this.first = 0;
    this.timer = 0;
    const anew = () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.load(0), WAIT);
    };
    find("rules-search").addEventListener("input", anew);
    find("rules-tree").addEventListener("input", anew);
    find("rules-form").addEventListener("submit", (event) => { event.preventDefault(); this.load(0); });
    find("rules-before").addEventListener("click", () => this.turn(-COUNT));
    find("rules-after").addEventListener("click", () => this.turn(COUNT));
  }

  show(model) {
    this.model = model;
    find("rules-search").value = "";
    find("rules-tree").value = "";
    find("rules-tree").max = model.trees;
    find("rules-tree-of").hidden = model.trees < 2;
    find("rules").replaceChildren();
    return this.load(0);
  }

  async turn(by) {
    await this.load(this.first + by);
    find("rules-title").scrollIntoView({ block: "nearest" });
  }

  async load(first) {
    if (!this.model) return;
    this.stop?.abort();
    const stop = this.stop = new AbortController();
    const query = new URLSearchParams({ lang: language(), first: String(Math.max(first, 0)), count: String(COUNT) });
    const search = find("rules-search").value.trim(), tree = find("rules-tree").value;
    if (search) query.set("search", search);
    if (tree) query.set("tree", tree);
    try {
      const path = `models/${encodeURIComponent(this.model.name)}/rules?${query}`;
      this.fill(await ask(path, { signal: stop.signal }), Math.max(first, 0));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 401) this.failed(error);
      find("rules").replaceChildren();
      find("rules-count").textContent = error.status ? visible(error.message, 300) : say("serve_gone");
      find("rules-before").disabled = find("rules-after").disabled = true;
    }
  }

  fill(said, first) {
    this.first = first;
    find("rules").replaceChildren(...said.rules.map((rule) => this.rule(rule)));
    const [from, to] = [said.rules.length ? first + 1 : 0, first + said.rules.length];
    find("rules-count").textContent = said.found === 0 ? say("serve_rules_none")
      : say(said.found === said.total ? "serve_rules_all" : "serve_rules_found",
        { from: whole(from), to: whole(to), found: whole(said.found), total: whole(said.total) });
    find("rules-before").disabled = first === 0;
    find("rules-after").disabled = to >= said.found;
  }

  rule(rule) {
    const cut = (text) => el("bdi", {}, text.length > LINE ? `${text.slice(0, LINE)}…` : text);
    const all = rule.conditions.length ? rule.conditions : [rule.text];
    const place = this.model.trees > 1 ? say("serve_rule_place_tree", { number: whole(rule.number), tree: whole(rule.tree) })
      : say("serve_rule_place", { number: whole(rule.number) });
    return el("li", {}, el("p", { class: "note" }, place, rule.weight == null ? null : ` · ${say("explain_support", { support: number(rule.weight) })}`),
      el("ul", { class: "clauses" }, all.slice(0, CONDITIONS).map((text) => el("li", {}, cut(text))),
        all.length > CONDITIONS ? el("li", {}, say("explain_more", { count: all.length - CONDITIONS })) : null),
      el("p", {}, "→ ", el("strong", {}, cut(rule.says)), rule.shares ? el("span", { class: "note" }, cut(rule.shares)) : null));
  }
}
