// Phrases in the user's language, and exact, language-independent numbers.
import { el } from "./dom.js";

let spoken = {}, chosen = "en";
export let pictures = false;  // whether the server draws trees

export async function learn() {
  ({ spoken, pictures } = await (await fetch("page/words.json")).json());
  return Object.keys(spoken);
}

export const language = () => chosen;
export const known = (code) => Object.hasOwn(spoken, code);

// Requested or previously chosen language, else the browser's first supported one.
export function preferred(asked) {
  const own = [...(navigator.languages ?? [])].map((code) => code.toLowerCase().split("-")[0]);
  return [asked, remembered(), ...own].find((code) => code && known(code)) ?? "en";
}

export function speak(code) {
  chosen = code;
  try { localStorage.setItem("treekit-language", code); } catch { /* a browser may forbid it */ }
  document.documentElement.lang = code === "zh" ? "zh-Hans" : code;
  for (const node of document.querySelectorAll("[data-say]")) node.textContent = say(node.dataset.say);
  for (const node of document.querySelectorAll("[data-label]")) {
    node.setAttribute("aria-label", say(node.dataset.label));
  }
}

function remembered() {
  try { return localStorage.getItem("treekit-language"); } catch { return null; }
}

const FIELD = /\{([a-z_]+)\}/;

export function say(key, fields = {}, of = chosen) {
  return spoken[of][key].split(FIELD).map((part, at) => (at % 2 ? String(fields[part]) : part)).join("");
}

// Phrase with elements in its fields.
export function told(key, fields = {}) {
  const parts = spoken[chosen][key].split(FIELD);
  return el("span", {}, parts.map((part, at) => (at % 2 ? fields[part] : part)));
}

// Shortest text that reads back to the same number, in single precision for float32.
export function number(value, dtype = "float64") {
  if (dtype === "float32") {
    for (let digits = 1; digits < 10; digits += 1) {
      const short = Number(value.toPrecision(digits));
      if (Math.fround(short) === value) return String(short);
    }
  }
  return String(value);
}

// Four decimals; a share that only rounds to 0 or 1 is marked by < or >.
export function share(value) {
  const text = value.toFixed(4);
  if (text === "0.0000" && value > 0) return "< 0.0001";
  return text === "1.0000" && value < 1 ? "> 0.9999" : text;
}

export const signed = (text) => (text.startsWith("-") ? `−${text.slice(1)}` : `+${text}`);
export const whole = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
