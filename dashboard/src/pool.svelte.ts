// The page's one source of truth: follows the stream, comes back by itself, keeps a bounded past.

import { get, lines, send, stream, Unauthorized } from "./api";
import type { AppOrder, ConfigTaken, ConfigVersion, ConfigView, HistorySample, LogLine, PoolEvent, Status, Why } from "./api";
import { Past } from "./series";

const MOST_EVENTS = 200;
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 5000;
/** The API sends something at least every 15 s; a connection that is silent for longer is dead. */
const SILENCE_MS = 40_000;
const TOKEN_KEY = "weal-token";
const PATIENCE_MS = 15_000;
const LOG_LINES = 200;

export type Link = "connecting" | "live" | "lost" | "locked";

export class Pool {
  link = $state<Link>("connecting");
  status = $state.raw<Status | null>(null);
  /** Newest first. */
  events = $state.raw<PoolEvent[]>([]);
  /** Grows with every change of `past`, which itself is too big to be watched. */
  tick = $state(0);
  past = new Past();
  /** How far back the charts reach, in seconds. */
  rangeS = $state(this.past.windowS);
  /** Why a token is asked for; empty while none is. */
  refusal = $state("");
  /** The first host of each application's routes. Only who may read the config knows them. */
  hosts = $state.raw(new Map<string, string>());

  private stopped = new AbortController();
  private token = sessionStorage.getItem(TOKEN_KEY) ?? "";
  private wake: () => void = () => {};

  start(): () => void {
    void this.follow();
    void this.findHosts();
    return () => this.stopped.abort();
  }

  unlock(token: string): void {
    this.token = token.trim();
    sessionStorage.setItem(TOKEN_KEY, this.token);
    this.refusal = "";
    if (this.link === "locked") this.link = "connecting";
    this.wake();
    void this.findHosts();
  }

  get hasToken(): boolean {
    return this.token !== "";
  }

  /** Asks as who may give orders. Without such a token, the page asks for one. */
  private async asked<T>(ask: (signal: AbortSignal) => Promise<T>): Promise<T> {
    try {
      return await ask(AbortSignal.timeout(PATIENCE_MS));
    } catch (error) {
      if (error instanceof Unauthorized) this.refusal = this.token === "" ? "Orders, logs and deploys need a token." : `This token does not count any more: ${error.message}.`;
      throw error;
    }
  }

  async order(app: string, verb: AppOrder): Promise<void> {
    const body = verb === "sleep" ? {} : undefined;
    await this.asked((signal) => send("POST", `/v1/apps/${encodeURIComponent(app)}/${verb}`, body, this.token, signal));
  }

  logs(app: string): Promise<LogLine[]> {
    return this.asked((signal) => lines(`/v1/apps/${encodeURIComponent(app)}/logs?json=true&tail=${LOG_LINES}`, this.token, signal));
  }

  versions(): Promise<ConfigVersion[]> {
    return this.asked((signal) => get(`/v1/configs`, this.token, signal));
  }

  /** Deploys a former version again; the answer says what that changes. */
  rollback(generation: number): Promise<string> {
    return this.asked(async (signal) => {
      const { text, path } = await get<ConfigVersion>(`/v1/configs/${generation}`, this.token, signal);
      const update = { text: text ?? "", path, origin: `rollback to ${generation} (dashboard)` };
      const taken = await send<ConfigTaken>("PUT", "/v1/config", update, this.token, signal);
      return taken.changes.length === 0 ? "Nothing that runs changes." : `Version ${taken.generation}: ${taken.changes.join("; ")}.`;
    });
  }

  /** Links are a help: without the right to read the config there are none. */
  private async findHosts(): Promise<void> {
    if (this.token === "") return;
    const view = await get<ConfigView>("/v1/config", this.token, AbortSignal.timeout(PATIENCE_MS)).catch(() => null);
    const exact = (app: { routes?: { host?: string | null }[] }) => app.routes?.map((route) => route.host ?? "").find((host) => /^[a-z0-9.-]+$/.test(host));
    const found = Object.entries(view?.spec?.apps ?? {}).map(([name, app]) => [name, exact(app)] as const);
    this.hosts = new Map(found.filter((pair): pair is [string, string] => pair[1] !== undefined));
  }

  why(app: string, signal: AbortSignal): Promise<Why> {
    return get<Why>(`/v1/apps/${encodeURIComponent(app)}/why`, this.token, signal);
  }

  private async follow(): Promise<void> {
    let pause = FIRST_RETRY_MS;
    while (!this.stopped.signal.aborted) {
      try {
        await this.connect(() => (pause = FIRST_RETRY_MS));
      } catch (error) {
        if (error instanceof Unauthorized) {
          this.link = "locked";
          this.refusal = this.token === "" ? "The pool is shown to who has a token." : `This token does not count any more: ${error.message}.`;
          await new Promise<void>((resolve) => (this.wake = resolve));
          continue;
        }
      }
      this.link = "lost";
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, LONGEST_RETRY_MS);
    }
  }

  /** One connection, until it ends. What was missed meanwhile is fetched again: the past as a whole, events since the last. */
  private async connect(connected: () => void): Promise<void> {
    const attempt = new AbortController();
    const signal = AbortSignal.any([attempt.signal, this.stopped.signal]);
    let timer = 0;
    const alive = () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => attempt.abort(), SILENCE_MS);
    };
    alive();
    try {
      await this.catchUp(signal);
      await stream("/v1/stream", this.token, signal, alive, (name, data) => {
        if (name === "status") {
          this.take(JSON.parse(data) as Status);
          this.link = "live";
          connected();
        } else if (name === "event") {
          this.addEvents([JSON.parse(data) as PoolEvent]);
        }
      });
    } finally {
      clearTimeout(timer);
      attempt.abort();
    }
  }

  /** Shows the last `seconds`. Until the controller has answered, the charts stay as they are. */
  async show(seconds: number): Promise<void> {
    this.rangeS = seconds;
    const history = await this.history(seconds, AbortSignal.timeout(PATIENCE_MS)).catch(() => []);
    // Another one may have been asked for meanwhile.
    if (this.rangeS !== seconds) return;
    this.past.windowS = seconds;
    if (history.length > 0) this.past.load(history);
    this.tick += 1;
  }

  private history(seconds: number, signal: AbortSignal): Promise<HistorySample[]> {
    return get<HistorySample[]>(`/v1/history?since_s=${seconds}`, this.token, signal);
  }

  private async catchUp(signal: AbortSignal): Promise<void> {
    const [history, events] = await Promise.all([
      this.history(this.past.windowS, signal),
      get<PoolEvent[]>(`/v1/events?limit=${MOST_EVENTS}`, this.token, signal),
    ]);
    if (history.length > 0) this.past.load(history);
    this.addEvents(events);
    this.tick += 1;
  }

  private take(status: Status): void {
    this.status = status;
    this.past.add(status);
    this.tick += 1;
  }

  private addEvents(news: PoolEvent[]): void {
    // Ids begin again with a new store, so the time belongs to the key.
    const known = new Set(this.events.map(eventKey));
    const all = [...news.filter((event) => !known.has(eventKey(event))), ...this.events];
    this.events = all.sort((a, b) => b.time - a.time || b.id - a.id).slice(0, MOST_EVENTS);
  }
}

export const eventKey = (event: PoolEvent) => `${event.time}-${event.id}`;
