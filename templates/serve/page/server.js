// Requests to the server of this page, and their errors.
const KEY = "treekit-token";
let token = stored();

function stored() {
  try { return sessionStorage.getItem(KEY) ?? ""; } catch { return ""; }
}

export function useToken(text) {
  token = text;
  try { sessionStorage.setItem(KEY, text); } catch { /* without storage, the token lasts until the page is closed */ }
}

// Error response; status 0 if there was no response.
export class Refused extends Error {
  constructor(status, message, after = "") {
    super(message);
    this.status = status;
    this.after = after;
  }
}

const bearer = () => (token ? { Authorization: `Bearer ${token}` } : {});

export async function ask(path, { body, signal } = {}) {
  let answer;
  const options = { signal, headers: bearer(), credentials: "same-origin", redirect: "error" };
  if (body !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "");
  }
  let said = null;
  try { said = await answer.json(); } catch (error) { if (error.name === "AbortError") throw error; }
  if (answer.ok && said !== null) return said;
  throw new Refused(answer.status || 502, String(said?.error ?? answer.statusText),
    answer.headers.get("Retry-After") ?? "");
}

// Picture as a document, which the browser parses but never executes.
export function picture(path, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", path);
    request.responseType = "document";
    request.overrideMimeType("image/svg+xml");
    for (const [key, value] of Object.entries(bearer())) request.setRequestHeader(key, value);
    const stop = () => request.abort();
    signal?.addEventListener("abort", stop);
    request.onloadend = () => {
      signal?.removeEventListener("abort", stop);
      const root = request.responseXML?.documentElement;
      if (request.status === 200 && root?.localName === "svg") resolve(root);
      else if (signal?.aborted) reject(new DOMException("", "AbortError"));
      else reject(new Refused(request.status, ""));
    };
    request.send();
  });
}
