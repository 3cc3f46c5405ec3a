// Numbers and states in words.

import type { AppStatus, Binding, FlowStatus, Status } from "./api";

export function cores(value: number): string {
  return value.toFixed(2);
}

export function bytes(value: number): string {
  for (const [size, name] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]] as const) {
    if (value >= size) return `${(value / size).toFixed(value / size < 10 ? 1 : 0)} ${name}`;
  }
  return `${value} B`;
}

export function span(ms: number): string {
  if (ms === 0) return "0 ms";
  if (ms >= 10_000) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
}

export function signed(utility: number): string {
  if (utility === 0) return "0";
  return `${utility < 0 ? "−" : "+"}${Math.abs(utility).toFixed(2)}`;
}

export function rate(perSecond: number): string {
  return `${perSecond.toFixed(perSecond > 0 && perSecond < 10 ? 1 : 0)}/s`;
}

/** What a flow's goal is about, as achieved. */
export function achieved(flow: FlowStatus): string {
  if (flow.achieved == null) return "no traffic";
  return flow.goal?.kind === "throughput" ? rate(flow.achieved) : span(flow.achieved);
}

/** The goal on the scale of `achieved`: milliseconds, or requests per second. */
export function target(flow: FlowStatus): number | null {
  if (flow.goal == null) return null;
  return flow.goal.kind === "throughput" ? flow.goal.per_second : flow.goal.target_s * 1000;
}

/** What keeps a flow from more, as the end of a sentence. */
export function limitedBy(binding: Binding): string {
  switch (binding.limit) {
    case "satisfied":
      return "more would not make it faster";
    case "cpu":
      return `${binding.nodes.length > 0 ? `the CPU of ${list(binding.nodes)}` : "CPU"} is all allocated`;
    case "memory":
      return `another instance fits nowhere: ${bytes(binding.missing)} of memory are missing`;
    case "max-instances":
      return `it may have at most ${binding.max} instance${binding.max === 1 ? "" : "s"}`;
    case "instance-cpu":
      return "one instance cannot use more CPU";
    case "constraint":
      return binding.what;
    case "change-cost":
      return "a change would cost more than it gives";
    case "manual":
      return "its placement is manual";
    case "unmeasured":
      return "nothing has been measured yet";
  }
}

export function list(words: string[]): string {
  if (words.length > 4) return `${words.slice(0, 3).join(", ")} and ${words.length - 3} more`;
  return words.length < 2 ? (words[0] ?? "") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** How an application is: sleeping, crashing and idle are three things. */
export interface Condition {
  tone: "good" | "warn" | "bad" | "muted";
  sign: string;
  word: string;
  detail: string;
}

/** Starts after which an instance that does not get ready is in a crash loop. */
const CRASHES = 3;

export function condition(app: AppStatus, status: Status): Condition {
  const crashing = app.instances.find((instance) => instance.restarts >= CRASHES && ["backoff", "starting"].includes(instance.state));
  if (app.rollout?.phase === "stuck") return { tone: "bad", sign: "✕", word: "rollout stuck", detail: app.rollout.detail };
  if (crashing !== undefined) {
    return { tone: "bad", sign: "↻", word: "crashing", detail: `${crashing.id} was started again ${crashing.restarts} times: ${crashing.detail}` };
  }
  const detail = app.detail;
  switch (app.state) {
    case "failed":
      return { tone: "bad", sign: "✕", word: "failed", detail };
    case "degraded":
      return { tone: "warn", sign: "▲", word: "degraded", detail };
    case "asleep":
      return { tone: "muted", sign: "☾", word: "asleep", detail: app.told_to_sleep ? "It was told to sleep." : detail };
    case "stopped":
    case "done":
      return { tone: "muted", sign: "■", word: app.state, detail };
    case "ready": {
      const flows = status.flows.filter((flow) => flow.app === app.name);
      const busy = flows.some((flow) => flow.arrival_per_s > 0 || flow.queue_mean > 0);
      if (flows.some((flow) => (flow.utility ?? 0) < 0)) return { tone: "bad", sign: "✕", word: "misses its goal", detail };
      return flows.length > 0 && !busy ? { tone: "muted", sign: "○", word: "idle", detail } : { tone: "good", sign: "●", word: "serving", detail };
    }
    default:
      return { tone: "warn", sign: "…", word: app.state, detail };
  }
}

/** Who is worst off, and why: the page's first sentence. */
export interface Headline {
  tone: "good" | "bad" | "unknown";
  lead: string;
  /** The application it is about, to ask why. */
  app: string | null;
  text: string;
}

export function headline(status: Status): Headline {
  const broken = status.apps.find((app) => app.state === "failed") ?? status.apps.find((app) => app.state === "degraded");
  if (broken !== undefined) return brokenApp(broken);
  const measured = status.flows.filter((flow) => flow.utility != null);
  if (measured.length === 0) {
    const text = status.flows.some((flow) => flow.goal != null) ? "No requests have come in lately." : "No flow has a goal yet.";
    return { tone: "unknown", lead: "Nobody is known to be worse off.", app: null, text };
  }
  const worst = measured.reduce((a, b) => (b.utility! < a.utility! ? b : a));
  const name = `${worst.app} (${worst.class})`;
  const numbers = `${measure(worst)} ${achieved(worst)}, the goal is ${worst.goal_text}`;
  if (worst.utility! >= 0) {
    const count = measured.length === 1 ? "The goal is met." : `All ${measured.length} goals are met.`;
    return { tone: "good", lead: count, app: worst.app, text: `Nearest to its limit is ${name}: ${numbers}.` };
  }
  const queue = worst.queue_mean >= 0.5 ? ` ${counted(worst.queue_mean, "request waits", "requests wait")} for ${counted(worst.seats, "seat", "seats")}.` : "";
  const why = `${sentence(limitedBy(worst.binding))}.`;
  return { tone: "bad", lead: `${name} is worst off.`, app: worst.app, text: `${sentence(numbers)}. ${why}${queue}` };
}

function counted(number: number, one: string, many: string): string {
  const whole = number.toFixed(0);
  return `${whole} ${whole === "1" ? one : many}`;
}

function brokenApp(app: AppStatus): Headline {
  const ready = app.instances.filter((instance) => instance.state === "ready").length;
  const detail = app.detail === "" ? `${ready} of at least ${app.min} instances are ready.` : `${sentence(app.detail.replace(/\.$/, ""))}.`;
  if (app.rollout?.phase === "stuck") {
    return { tone: "bad", lead: `The rollout of ${app.name} is stuck.`, app: app.name, text: detail };
  }
  const lead = app.state === "failed" ? `${app.name} has failed.` : `${app.name} has too few instances.`;
  return { tone: "bad", lead, app: app.name, text: detail };
}

function measure(flow: FlowStatus): string {
  switch (flow.goal?.kind) {
    case "throughput":
      return "throughput is";
    case "percentile":
      return `p${+(flow.goal.percentile * 100).toFixed(2)} is`;
    default:
      return "the mean is";
  }
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A moment as seen from another, both in nanoseconds: `in 3 min`, `20 s ago`. */
export function until(time: number, now: number): string {
  return time >= now ? `in ${longSpan(time - now)}` : `${longSpan(now - time)} ago`;
}

/** So many nanoseconds. */
export function longSpan(nanoseconds: number): string {
  const seconds = nanoseconds / 1e9;
  return seconds < 100 ? `${seconds.toFixed(0)} s` : seconds < 6000 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/** Date and time of day. */
export function moment(time: number): string {
  const date = new Date(time / 1e6);
  return `${date.toLocaleDateString()} ${date.toTimeString().slice(0, 5)}`;
}

export function clock(time: number): string {
  return new Date(time / 1e6).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
}
