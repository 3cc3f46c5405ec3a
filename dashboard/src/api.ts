// What the controller's API answers, as openapi/weal.json has it (`npm run types`), and how this page asks. Units stand at the end of
// names; CPU is in cores, memory in bytes, times in nanoseconds since 1970.

import type { components } from "./openapi";

type Schemas = components["schemas"];

export type AppStatus = Schemas["AppStatus"];
export type AppOrder = "restart" | "stop" | "start" | "sleep" | "wake";
export type Binding = Schemas["Binding"];
export type ConfigTaken = Schemas["ConfigTaken"];
/** `failed` says why a version did not come up. */
export type ConfigVersion = Schemas["ConfigVersion"] & { failed?: string | null };
export type ConfigView = Schemas["ConfigView"];
export type FlowStatus = Schemas["FlowStatus"];
export type Goal = Schemas["Goal"];
export type HistorySample = Schemas["HistorySample"];
export type InstanceState = Schemas["InstanceState"];
export type InstanceStatus = Schemas["InstanceStatus"];
export type JobStatus = Schemas["JobStatus"];
export type NodeStatus = Schemas["NodeStatus"];
export type PlanSummary = Schemas["PlanSummary"];
export type PoolEvent = Schemas["Event"];
export type Status = Schemas["Status"];
/** A line of `GET /v1/apps/{app}/logs?json=true`. */
export interface LogLine {
  time: number | null;
  instance: string;
  line: string;
}
export type Why = Schemas["Why"];

/** The API wants a token, or does not know the one that it got. The message is what it said. */
export class Unauthorized extends Error {}

function headers(token: string): HeadersInit {
  return token === "" ? {} : { authorization: `Bearer ${token}` };
}

async function open(path: string, token: string, signal: AbortSignal, order: RequestInit = {}): Promise<Response> {
  const response = await fetch(path, { ...order, headers: headers(token), signal, cache: "no-store" });
  if (response.ok) return response;
  const said = await refusal(response);
  if (response.status === 401) throw new Unauthorized(said);
  throw new Error(said);
}

/** Why the API says no, in its own words. */
async function refusal(response: Response): Promise<string> {
  const answer = (await response.json().catch(() => ({}))) as { error?: unknown };
  return typeof answer.error === "string" ? answer.error : `the controller answered ${response.status}`;
}

/** Gives an order. */
export async function send<T>(method: "POST" | "PUT", path: string, body: unknown, token: string, signal: AbortSignal): Promise<T> {
  const order = { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
  return (await open(path, token, signal, order)).json() as Promise<T>;
}

/** One JSON value in each line. */
export async function lines<T>(path: string, token: string, signal: AbortSignal): Promise<T[]> {
  const text = await (await open(path, token, signal)).text();
  return text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line) as T);
}

export async function get<T>(path: string, token: string, signal: AbortSignal): Promise<T> {
  return (await open(path, token, signal)).json() as Promise<T>;
}

/**
 * Reads server-sent events until the stream ends. Not an EventSource, because that can neither send a token nor come back after
 * an answer such as 503. `alive` is called for every piece, comments included.
 */
export async function stream(
  path: string,
  token: string,
  signal: AbortSignal,
  alive: () => void,
  message: (name: string, data: string) => void,
): Promise<void> {
  const response = await open(path, token, signal);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop()!;
    for (const block of blocks) dispatch(block, message);
  }
}

function dispatch(block: string, message: (name: string, data: string) => void): void {
  let name = "message";
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (line.startsWith("event:")) name = value;
    if (line.startsWith("data:")) data.push(value);
  }
  if (data.length > 0) message(name, data.join("\n"));
}
