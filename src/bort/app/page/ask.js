// Questions to the server.
export const address = (path, parameters = {}) =>
  `api/${path}?${new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null))}`;

// The same question has the same answer (but for calculations under way): a click asks only for what is new.
const answers = new Map();
export function ask(path, parameters) {
  const question = address(path, parameters);
  if (!answers.has(question)) {
    if (answers.size > 200) answers.delete(answers.keys().next().value);
    answers.set(question, asked(question).catch((error) => { answers.delete(question); throw error; }));
  }
  return answers.get(question);
}

export const asked = async (question, options) => (await answer(question, options)).json();
export const file = async (question) => (await answer(question)).blob();

async function answer(question, options) {
  let response;
  try { response = await fetch(question, options); }
  catch { throw new Error("The server does not answer. Is bort serve still running?"); }
  if (response.ok) return response;
  const { message } = await response.json().catch(() => ({}));
  throw Object.assign(new Error(message || `The server answered ${response.status}.`), { status: response.status });
}
