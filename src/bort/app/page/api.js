// Requests to the server.
export const url = (path, parameters = {}) =>
  `api/${path}?${new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null))}`;

// The answer to a GET request, kept for the next time: except for calculations under way, the same request has the same answer.
const answers = new Map();
export function ask(path, parameters) {
  const request = url(path, parameters);
  if (!answers.has(request)) {
    if (answers.size > 200) answers.delete(answers.keys().next().value);
    answers.set(request, fetchJson(request).catch((error) => { answers.delete(request); throw error; }));
  }
  return answers.get(request);
}

export const fetchJson = async (request, options) => (await send(request, options)).json();
export const fetchFile = async (request) => (await send(request)).blob();

async function send(request, options) {
  let response;
  try { response = await fetch(request, options); }
  catch { throw new Error("The server does not answer. Is bort serve still running?"); }
  if (response.ok) return response;
  const { message } = await response.json().catch(() => ({}));
  throw Object.assign(new Error(message || `The server answered ${response.status}.`), { status: response.status });
}
