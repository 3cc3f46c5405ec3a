// What the controller's API answers: the part of crates/model/src/{status,history}.rs that this page shows. Units stand at the
// end of names; CPU is in cores, memory in bytes, times in nanoseconds since 1970.

export type InstanceState =
  | "starting"
  | "ready"
  | "unhealthy"
  | "draining"
  | "suspended"
  | "warm"
  | "parked"
  | "stopping"
  | "backoff"
  | "stopped"
  | "failed";

export interface Status {
  pool: string;
  version: string;
  time: number;
  config_generation: number;
  config_error: string | null;
  control: boolean;
  listen: string;
  limits: string[];
  problems?: string[];
  nodes: NodeStatus[];
  apps: AppStatus[];
  flows: FlowStatus[];
  plan: PlanSummary | null;
}

export interface NodeStatus {
  name: string;
  up: boolean;
  cpu_capacity: number;
  cpu_used: number;
  cpu_allocated: number;
  memory_capacity: number;
  memory_used: number;
}

export interface AppStatus {
  name: string;
  state: string;
  detail: string;
  min: number;
  max: number;
  cpu_used: number;
  cpu_demand: number;
  cpu_allocated: number;
  utility: number | null;
  instances: InstanceStatus[];
}

export interface InstanceStatus {
  id: string;
  node: string;
  state: InstanceState;
  detail: string;
  cpu_used: number;
  cpu_allocated: number;
  memory_used: number;
  swap_used: number;
  last_wake_ms: number | null;
  in_flight: number;
  restarts: number;
}

export type Goal =
  | { kind: "mean"; target_s: number }
  | { kind: "percentile"; percentile: number; target_s: number }
  | { kind: "throughput"; per_second: number };

export type Binding =
  | { limit: "satisfied" | "instance-cpu" | "change-cost" | "manual" | "unmeasured" }
  | { limit: "cpu"; nodes: string[] }
  | { limit: "memory"; missing: number }
  | { limit: "max-instances"; max: number }
  | { limit: "constraint"; what: string };

export interface FlowStatus {
  id: { gateway: string; app: string; class: string };
  app: string;
  class: string;
  goal: Goal | null;
  goal_text: string;
  achieved: number | null;
  utility: number | null;
  arrival_per_s: number;
  throughput_per_s: number;
  rejected_per_s: number;
  errors_per_s: number;
  queue_mean: number;
  in_service_mean: number;
  seats: number;
  cpu_used: number;
  cpu_allocated: number;
  binding: Binding;
}

export interface PlanSummary {
  generation: number;
  time: number;
  planned_in_ms: number;
  actions: number;
  lowest_utility: number | null;
  upper_bound: number | null;
}

export interface PoolEvent {
  id: number;
  time: number;
  severity: "info" | "warning" | "error";
  kind: string;
  app: string | null;
  instance: string | null;
  node: string | null;
  text: string;
}

export interface Why {
  app: string;
  sentences: string[];
}

export interface HistorySample {
  time: number;
  span_s: number;
  flows: {
    app: string;
    class: string;
    achieved: number | null;
    utility: number | null;
    seats: number;
    queue_mean: number;
    arrival_per_s: number;
  }[];
  nodes: { name: string; cpu_used: number; cpu_allocated: number }[];
  apps: { name: string; ready: number; cpu_used: number; cpu_allocated: number }[];
}

/** The API wants a token: it listens beyond loopback. */
export class Unauthorized extends Error {}

function headers(token: string): HeadersInit {
  return token === "" ? {} : { authorization: `Bearer ${token}` };
}

async function open(path: string, token: string, signal: AbortSignal): Promise<Response> {
  const response = await fetch(path, { headers: headers(token), signal, cache: "no-store" });
  if (response.status === 401) throw new Unauthorized();
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response;
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
