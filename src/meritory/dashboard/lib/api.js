// The daemon's own documented API; the cookie of the dashboard goes along by itself.

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the daemon answered ${status}`);
    this.status = status;
    this.code = problem.code;
    this.hint = problem.hint;
  }
}

function address(path, query) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

async function ask(method, path, { query, body, signal } = {}) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(address(path, query), {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { detail: "the daemon does not answer", hint: "meritory up" });
  }
  const text = await response.text();
  let answer = {};
  try {
    answer = text ? JSON.parse(text) : {};
  } catch {
    answer = { detail: text.slice(0, 200) };
  }
  if (!response.ok) throw new ApiError(response.status, answer);
  return answer;
}

export const api = {
  get: (path, query, signal) => ask("GET", path, { query, signal }),
  post: (path, body, query) => ask("POST", path, { body: body ?? {}, query }),
  patch: (path, body, query) => ask("PATCH", path, { body, query }),
  remove: (path, query) => ask("DELETE", path, { query }),
  part: encodeURIComponent,
};
