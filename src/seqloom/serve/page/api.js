/** Calls to the server: same origin, one header that no form can send, aborts, and what happens when it is gone. */

import { useEffect, useRef, useState } from "./lib.js";

/** The server refused; its sentence is the message. */
export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Nobody answers. */
export class Gone extends Error {}

const KEY = "seqloom-key";
const RETRY_MILLISECONDS = 1000;

/** What is known about the server; `onServer` hears of changes. */
export const server = { gone: false, needsKey: false, times: 0 };
const listeners = new Set();
function changed(changes) {
  Object.assign(server, changes);
  for (const each of listeners) each({ ...server });
}
export function useServer() {
  const [state, change] = useState({ ...server });
  useEffect(() => {
    listeners.add(change);
    change({ ...server });
    return () => listeners.delete(change);
  }, []);
  return state;
}

function key() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}
/** Use this key from now on, until the tab is closed. */
export function setKey(text) {
  try {
    sessionStorage.setItem(KEY, text);
  } catch {
    /* asked for again after a reload */
  }
  changed({ needsKey: false, times: server.times + 1 });
}

let waiting = 0;
function isGone() {
  if (!server.gone) changed({ gone: true });
  if (waiting) return;
  waiting = setInterval(async () => {
    try {
      const answer = await fetch("/ready", { cache: "no-store" });
      if (!answer.ok) return;
    } catch {
      return;
    }
    clearInterval(waiting);
    waiting = 0;
    changed({ gone: false, times: server.times + 1 });
  }, RETRY_MILLISECONDS);
}

function headers(body) {
  const given = { "x-seqloom": "1" };
  if (body !== undefined) given["content-type"] = "application/json";
  if (key()) given.authorization = `Bearer ${key()}`;
  return given;
}

async function ask(path, body, signal) {
  let answer;
  try {
    answer = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers: headers(body),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    isGone();
    throw new Gone("the server does not answer");
  }
  if (answer.ok) return answer;
  let message = `${answer.status} ${answer.statusText}`;
  try {
    const given = (await answer.json()).error;
    message = typeof given === "string" ? given : (given?.message ?? message);
  } catch {
    /* no JSON: the status says it */
  }
  if (answer.status === 401) changed({ needsKey: true });
  throw new Refused(message, answer.status);
}

const KEPT = 60;
const answers = new Map();

/**
 * The JSON of a call. Answers of the same question are kept, so that going to and fro between lenses costs nothing.
 * @param {string} path @param {unknown} [body] @param {AbortSignal} [signal]
 */
export async function call(path, body, signal, { keep = body !== undefined } = {}) {
  const question = keep ? `${path}\n${JSON.stringify(body)}` : "";
  if (keep && answers.has(question)) return answers.get(question);
  const value = await (await ask(path, body, signal)).json();
  if (keep) {
    answers.set(question, value);
    if (answers.size > KEPT) answers.delete(answers.keys().next().value);
  }
  return value;
}

/** The kept answer to a question, if there is one: it can be shown at once. */
export const kept = (path, body) => answers.get(`${path}\n${JSON.stringify(body)}`);

/**
 * Each event of a stream, as long as it lasts.
 * @param {string} path @param {unknown} body @param {AbortSignal} signal @param {(event: any) => void} onEvent
 */
export async function listen(path, body, signal, onEvent) {
  const answer = await ask(path, body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const blocks = text.split(/\r?\n\r?\n/);
      text = blocks.pop() ?? "";
      for (const block of blocks) {
        const data = block.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
        if (data.length) onEvent(JSON.parse(data.join("\n")));
      }
    }
  } catch (error) {
    if (signal.aborted) throw error;
    throw error instanceof SyntaxError ? error : new Gone("the stream was interrupted");
  }
}

/**
 * The answer of a call that belongs to these inputs: a new one aborts the old, the old value stays until the new one is
 * there, and after a server came back the call is made again.
 *
 * @param {((signal: AbortSignal) => Promise<any>) | null} run null asks nothing
 * @param {unknown[]} inputs
 * @param {any} [known] an answer that is there already
 */
export function useCall(run, inputs, known) {
  const [state, change] = useState({ value: null, error: null, loading: false, inputs: "" });
  const [tries, again] = useState(0);
  const { times } = useServer();
  const mark = JSON.stringify(inputs);
  const marks = useRef(mark);
  marks.current = mark;
  useEffect(() => {
    if (!run) {
      change({ value: null, error: null, loading: false, inputs: mark });
      return undefined;
    }
    if (known !== undefined) {
      change({ value: known, error: null, loading: false, inputs: mark });
      return undefined;
    }
    const controller = new AbortController();
    change((before) => ({ ...before, loading: true }));
    run(controller.signal).then(
      (value) => controller.signal.aborted || change({ value, error: null, loading: false, inputs: mark }),
      (error) => {
        if (controller.signal.aborted) return;
        change((before) => ({ ...before, error: error instanceof Gone ? null : error, loading: false, inputs: mark }));
      },
    );
    return () => controller.abort();
  }, [mark, run === null, tries, times]);
  return { ...state, isCurrent: state.inputs === mark && !state.loading, retry: () => again(tries + 1) };
}
