// The recent past, in columns: one array of times and one array per series, all of the same length. Bounded: what is older than
// the window is cut off, and a series that has no value left in it is forgotten.

import type { HistorySample, Status } from "./api";

/** How far back the charts may reach, in seconds, with the words for it. The controller keeps 36 hours. */
export const RANGES: [number, string][] = [
  [15 * 60, "15 min"],
  [3600, "1 h"],
  [6 * 3600, "6 h"],
  [24 * 3600, "24 h"],
];
/** More points than pixels show nothing: moments that are closer together become one. */
const MOST_POINTS = 900;
/** From this age on, in seconds, the controller keeps one sample a minute. */
const MINUTES_FROM_S = 3600;
/** A gap this many times longer than the usual distance is drawn as one. */
const GAP = 4;

export type Column = (number | null)[];

/** What jobs that are not over do; a column has the place in this list. */
export const JOB_STATES = ["waiting", "starting", "running", "paused", "suspended", "stopping", "migrating"];

export const flowKey = (app: string, className: string) => `${app}/${className}`;

export class Past {
  times: number[] = [];
  /** How far back it reaches, in seconds. What is there already stays until `load`. */
  windowS = RANGES[0]![0];
  private columns = new Map<string, Column>();
  /** The nodes that jobs were on; a column has the place in this list. */
  readonly jobNodes: string[] = [];
  /** CPU-seconds that each job had used at the last moment. */
  private jobsUsed = new Map<string, number>();

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
    this.jobsUsed = new Map();
    for (const sample of samples) this.append(sample.time / 1e9, values(sample), sample.jobs ?? []);
  }

  add(status: Status): void {
    const open = (status.jobs ?? []).filter((job) => JOB_STATES.includes(job.state));
    this.append(status.time / 1e9, values({ ...status, jobs: open }), open);
  }

  private append(time: number, values: Map<string, number | null>, jobs: JobValues[]): void {
    const last = this.times.at(-1);
    if (last !== undefined && time <= last) return;
    this.dropClose(time);
    this.addJobsCpu(values, jobs, last === undefined ? 0 : time - last);
    for (const job of jobs) values.set(`job ${job.id} node`, job.node == null ? null : this.placeOf(job.node));
    if (last !== undefined && time - last > GAP * this.usualStep()) this.push(last + (time - last) / 2, new Map());
    this.push(time, values);
    this.cut(time);
  }

  /** The newest moment is always shown, so the one before it gives way where it is too close to its own neighbour. */
  private dropClose(time: number): void {
    const before = this.times.at(-2);
    if (before === undefined || time - before > this.windowS / MOST_POINTS) return;
    this.times.pop();
    for (const column of this.columns.values()) column.pop();
  }

  /** CPU that jobs used since the last moment, in cores: their totals tell it only together with those before. */
  private addJobsCpu(values: Map<string, number | null>, jobs: JobValues[], seconds: number): void {
    const grown = (job: JobValues) => Math.max(0, job.cpu_used - (this.jobsUsed.get(job.id) ?? job.cpu_used));
    const cpu = seconds > 0 ? jobs.reduce((total, job) => total + grown(job), 0) / seconds : 0;
    this.jobsUsed = new Map(jobs.map((job) => [job.id, job.cpu_used]));
    values.set("cpu of both", (values.get("cpu of applications") ?? 0) + cpu);
  }

  private placeOf(node: string): number {
    const place = this.jobNodes.indexOf(node);
    return place >= 0 ? place : this.jobNodes.push(node) - 1;
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
    return Math.max(1, steps[Math.floor(steps.length / 2)] ?? (this.windowS > MINUTES_FROM_S ? 60 : 5));
  }

  /** Cuts now and then rather than each time: moving all columns costs more than a few points too many. */
  private cut(now: number): void {
    const surplus = this.times.findIndex((time) => time >= now - this.windowS);
    if (surplus < 30) return;
    this.times.splice(0, surplus);
    for (const [key, column] of this.columns) {
      column.splice(0, surplus);
      if (column.every((value) => value === null)) this.columns.delete(key);
    }
  }
}

/** What a sample and a status both say of jobs. */
type JobValues = Omit<NonNullable<HistorySample["jobs"]>[number], "node"> & { node?: string | null };

/** What a sample and a status both say of applications. */
type AppValues = Pick<HistorySample["apps"][number], "name" | "cpu_allocated" | "cpu_used">;

function values(sample: Pick<HistorySample, "flows"> & { apps: AppValues[]; jobs?: JobValues[] }): Map<string, number | null> {
  const values = new Map<string, number | null>();
  for (const flow of sample.flows) setFlow(values, flow);
  for (const app of sample.apps) {
    values.set(`app ${app.name} allocated`, app.cpu_allocated);
    values.set(`app ${app.name} used`, app.cpu_used);
  }
  for (const job of sample.jobs ?? []) values.set(`job ${job.id} state`, JOB_STATES.indexOf(job.state));
  values.set("cpu of applications", sample.apps.reduce((total, app) => total + app.cpu_used, 0));
  values.set("worst application", lowest(sample.flows.map((flow) => flow.utility)));
  values.set("worst job", lowest((sample.jobs ?? []).map((job) => job.utility)));
  return values;
}

function lowest(utilities: (number | null | undefined)[]): number | null {
  const known = utilities.filter((utility) => utility != null);
  return known.length === 0 ? null : Math.min(...known);
}

function setFlow(values: Map<string, number | null>, flow: HistorySample["flows"][number]): void {
  const key = flowKey(flow.app, flow.class);
  values.set(`flow ${key} achieved`, flow.achieved ?? null);
  values.set(`flow ${key} utility`, flow.utility ?? null);
  values.set(`flow ${key} seats`, flow.seats);
  values.set(`flow ${key} queue`, flow.queue_mean);
  values.set(`flow ${key} arrivals`, flow.arrival_per_s);
}
