// The recent past, in columns: one array of times and one array per series, all of the same length. Bounded: what is older than
// the window is cut off, and a series that has no value left in it is forgotten.

import type { HistorySample, Status } from "./api";

/** What the charts show, in seconds. */
export const WINDOW_S = 15 * 60;
/** More points than pixels show nothing: at a cycle of one second or less, some of the window is cut. */
export const MOST_POINTS = 900;
/** A gap this many times longer than the usual distance is drawn as one. */
const GAP = 4;

export type Column = (number | null)[];

export const flowKey = (app: string, className: string) => `${app}/${className}`;

export class Past {
  times: number[] = [];
  private columns = new Map<string, Column>();

  /** The values of `key`, as long as `times`. */
  column(key: string): Column {
    return this.columns.get(key) ?? new Array<null>(this.times.length).fill(null);
  }

  get size(): number {
    return this.columns.size;
  }

  /** Takes the place of everything. */
  load(samples: HistorySample[]): void {
    this.times = [];
    this.columns = new Map();
    for (const sample of samples) this.append(sample.time / 1e9, valuesOfSample(sample));
  }

  add(status: Status): void {
    this.append(status.time / 1e9, valuesOfStatus(status));
  }

  private append(time: number, values: Map<string, number | null>): void {
    const last = this.times.at(-1);
    if (last !== undefined && time <= last) return;
    if (last !== undefined && time - last > GAP * this.usualStep()) this.push(last + (time - last) / 2, new Map());
    this.push(time, values);
    this.cut(time);
  }

  private push(time: number, values: Map<string, number | null>): void {
    for (const key of values.keys()) {
      if (!this.columns.has(key)) this.columns.set(key, new Array<null>(this.times.length).fill(null));
    }
    this.times.push(time);
    for (const [key, column] of this.columns) column.push(values.get(key) ?? null);
  }

  private usualStep(): number {
    const recent = this.times.slice(-12);
    const steps = recent.slice(1).map((time, index) => time - recent[index]!).sort((a, b) => a - b);
    return Math.max(1, steps[Math.floor(steps.length / 2)] ?? 5);
  }

  /** Cuts now and then rather than each time: moving all columns costs more than a few points too many. */
  private cut(now: number): void {
    const old = this.times.findIndex((time) => time >= now - WINDOW_S);
    const surplus = Math.max(old, this.times.length - MOST_POINTS);
    if (surplus < 30) return;
    this.times.splice(0, surplus);
    for (const [key, column] of this.columns) {
      column.splice(0, surplus);
      if (column.every((value) => value === null)) this.columns.delete(key);
    }
  }
}

function valuesOfStatus(status: Status): Map<string, number | null> {
  const values = new Map<string, number | null>();
  for (const flow of status.flows) setFlow(values, flow);
  for (const app of status.apps) {
    values.set(`app ${app.name} allocated`, app.cpu_allocated);
    values.set(`app ${app.name} used`, app.cpu_used);
  }
  return values;
}

function valuesOfSample(sample: HistorySample): Map<string, number | null> {
  const values = new Map<string, number | null>();
  for (const flow of sample.flows) setFlow(values, flow);
  for (const app of sample.apps) {
    values.set(`app ${app.name} allocated`, app.cpu_allocated);
    values.set(`app ${app.name} used`, app.cpu_used);
  }
  return values;
}

function setFlow(values: Map<string, number | null>, flow: HistorySample["flows"][number]): void {
  const key = flowKey(flow.app, flow.class);
  values.set(`flow ${key} achieved`, flow.achieved ?? null);
  values.set(`flow ${key} utility`, flow.utility ?? null);
  values.set(`flow ${key} seats`, flow.seats);
  values.set(`flow ${key} queue`, flow.queue_mean);
  values.set(`flow ${key} arrivals`, flow.arrival_per_s);
}
