// A small stand-in for the controller's API, so that a test decides what the page sees and when.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const PAGE = readFileSync(new URL("../dist/index.html", import.meta.url));

/** What is in the page's only `element`, as a source of a policy. */
function hash(element) {
  const [, content] = new RegExp(`<${element}[^>]*>([\\s\\S]*?)</${element}`).exec(PAGE.toString());
  return `'sha256-${createHash("sha256").update(content).digest("base64")}'`;
}

/** The policy that the controller sends with the page (crates/controller/src/api/dashboard.rs). */
const POLICY =
  `default-src 'none'; script-src ${hash("script")}; style-src ${hash("style")}; img-src data:; connect-src 'self'; ` +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

export class Mock {
  constructor({ apps = ["shop", "search", "feed"], nodes = 4, token = "", jobs = 0, orderToken = "", hours = 0 } = {}) {
    this.orderToken = orderToken;
    this.ordered = [];
    this.apps = apps;
    this.jobs = jobs;
    this.nodes = Array.from({ length: nodes }, (_, index) => `n${index + 1}`);
    this.token = token;
    this.now = Date.now() / 1000;
    this.step = 0;
    this.open = new Set();
    this.sockets = new Set();
    this.events = [];
    this.unready = false;
    this.history = Array.from({ length: 60 }, () => this.sample(this.tick()));
    this.status = this.tick();
    // Older ones stand a minute apart, as the controller keeps them.
    const begin = this.history[0].time;
    const older = Array.from({ length: hours * 60 }, (_, index) => ({ ...this.history[0], time: begin - (index + 1) * 60e9 }));
    this.history.unshift(...older.reverse());
  }

  async start(port = 0) {
    this.server = createServer((request, response) => this.answer(request, response));
    this.server.on("connection", (socket) => {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
    });
    await new Promise((resolve) => this.server.listen(port, "127.0.0.1", resolve));
    this.port = this.server.address().port;
    this.url = `http://127.0.0.1:${this.port}/`;
  }

  /** As a controller that is killed: connections break off and nobody listens. */
  async stop() {
    for (const socket of this.sockets) socket.destroy();
    await new Promise((resolve) => this.server.close(resolve));
    this.open.clear();
  }

  /** The next cycle: utilities drift, `change` may edit the status before it is sent. */
  push(change = () => {}) {
    this.status = this.tick();
    change(this.status);
    this.history.push(this.sample(this.status));
    this.send("status", this.status);
  }

  event(text, severity = "info", kind = "plan") {
    const event = { id: this.events.length + 1, time: this.now * 1e9, severity, kind, app: null, instance: null, node: null, text };
    this.events.push(event);
    this.send("event", event);
  }

  send(name, value) {
    for (const response of this.open) response.write(`event: ${name}\ndata: ${JSON.stringify(value)}\n\n`);
  }

  answer(request, response) {
    const url = new URL(request.url, this.url);
    if (url.pathname === "/") {
      response.writeHead(200, { "content-type": "text/html", "content-security-policy": POLICY });
      return response.end(PAGE);
    }
    const json = (status, value) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    };
    if (this.unready) return json(503, { error: "starting" });
    if (this.token !== "" && request.headers.authorization !== `Bearer ${this.token}`) return json(401, { error: "needs a token" });
    if (this.orders(request, url, json, response)) return;
    if (url.pathname === "/v1/history") {
      this.since_s = Number(url.searchParams.get("since_s"));
      return json(200, this.history.filter((sample) => sample.time / 1e9 >= this.now - this.since_s));
    }
    if (url.pathname === "/v1/events") return json(200, this.events);
    const why = /^\/v1\/apps\/([^/]+)\/why$/.exec(url.pathname);
    if (why) return json(200, { app: decodeURIComponent(why[1]), sentences: [`Because of ${decodeURIComponent(why[1])}.`] });
    if (url.pathname !== "/v1/stream") return json(404, { error: "not found" });
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(`: weal\nretry: 1000\n\nevent: status\ndata: ${JSON.stringify(this.status)}\n\n`);
    this.open.add(response);
    request.on("close", () => this.open.delete(response));
  }

  /** Answers what needs the right to order; true when it did. */
  orders(request, url, json, response) {
    const order = /^\/v1\/(apps\/[^/]+\/(logs|restart|stop|start|sleep|wake)|configs?(\/\d+)?)$/.exec(url.pathname);
    if (!order) return false;
    if (this.orderToken === "" || request.headers.authorization !== `Bearer ${this.orderToken}`) {
      json(401, { error: "wrong token: it was never made, was revoked or has ended" });
      return true;
    }
    this.ordered.push(`${request.method} ${url.pathname}`);
    const version = (generation) => ({ generation, time: this.now * 1e9, who: null, origin: "weal deploy", path: "/srv/weal.toml", text: null, failed: generation === 2 ? "why" : null });
    if (url.pathname.endsWith("/logs")) {
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      response.end(`${JSON.stringify({ time: this.now * 1e9, instance: "shop-1", line: "<b>listening</b>" })}\n`);
    } else if (url.pathname === "/v1/configs") {
      json(200, [3, 2, 1].map(version));
    } else if (url.pathname.startsWith("/v1/configs/")) {
      json(200, { ...version(1), text: "[app.shop]" });
    } else if (url.pathname === "/v1/config") {
      json(200, request.method === "PUT" ? { generation: 4, changes: ["shop goes back"], warnings: [] } : { generation: 3, spec: { apps: { shop: { routes: [{ host: "shop.localhost" }] } } } });
    } else {
      json(200, {});
    }
    return true;
  }

  /** Brings the only instance of the last application to a state, in the next status and all that follow. */
  sleep(state, memory_used, swap_used, last_wake_ms) {
    const instance = { ...this.instance(this.apps.at(-1), this.apps.length - 1, 0), state, memory_used, swap_used, last_wake_ms };
    this.asleep = { state: state === "ready" ? "ready" : "asleep", min: 0, instances: [instance] };
    this.push();
  }

  tick() {
    this.step += 1;
    this.now += 2;
    const share = 0.4 / Math.max(1, this.apps.length / this.nodes.length);
    const flows = this.apps.map((app, index) => this.flow(app, index));
    const apps = this.apps.map((app, index) => ({
      name: app,
      state: "ready",
      detail: "",
      min: 1,
      max: 4,
      cpu_used: share * 0.8,
      cpu_demand: share,
      cpu_allocated: share * (1 + 0.3 * Math.sin(this.step / 9 + index)),
      utility: flows[index].utility,
      instances: [this.instance(app, index, share)],
    }));
    Object.assign(apps.at(-1), this.asleep);
    return {
      pool: "demo",
      version: "0.1.0",
      time: this.now * 1e9,
      config_generation: 3,
      config_error: null,
      control: true,
      listen: "http://127.0.0.1:8080",
      api: "http://127.0.0.1:8081",
      limits: ["CPU limits do not hold: weal does not run as root"],
      problems: [],
      nodes: this.nodes.map((name, index) => ({
        name,
        up: true,
        cpu_capacity: 0.4,
        cpu_used: 0.2 + 0.1 * Math.sin(this.step / 7 + index),
        cpu_allocated: 0.36,
        memory_capacity: 2 ** 29,
        memory_used: 2 ** 27,
      })),
      apps,
      flows,
      jobs: Array.from({ length: this.jobs }, (_, index) => this.job(index)),
      plan: null,
    };
  }

  flow(app, index) {
    const target_s = 0.25 * (1 + (index % 4));
    const utility = -0.3 * (index === 1 ? 1 : -1) + 0.2 * Math.sin(this.step / 8 + index);
    const p = { count: 200, mean_ms: 100, p50_ms: 90, p95_ms: 200, p99_ms: 300 };
    return {
      id: { gateway: "gw", app, class: "gold" },
      app,
      class: "gold",
      goal: { kind: "percentile", percentile: 0.95, target_s },
      goal_text: `p95 < ${target_s * 1000}ms`,
      importance: 2,
      achieved: target_s * 1000 * (1 - utility),
      utility,
      predicted_utility: utility,
      arrival_per_s: 40 + 10 * Math.sin(this.step / 10 + index),
      throughput_per_s: 40,
      rejected_per_s: 0,
      errors_per_s: 0,
      response: p,
      service: p,
      queue_mean: Math.max(0, -utility * 20),
      in_service_mean: 3,
      seats: 4 + (index % 5),
      weight: 10,
      cpu_used: 0.2,
      cpu_allocated: 0.3,
      work_factors: [],
      binding: { limit: "cpu", nodes: ["n1", "n2"] },
    };
  }

  instance(app, index, share) {
    return {
      id: `${app}-1`,
      node: this.nodes[index % this.nodes.length],
      state: "ready",
      detail: "",
      pid: 1000 + index,
      address: "127.0.0.1:40001",
      cpu_used: share * 0.8,
      cpu_allocated: share,
      memory_used: 2 ** 26,
      swap_used: 0,
      last_wake_ms: null,
      in_flight: 2,
      restarts: 0,
      since: this.now * 1e9,
    };
  }

  /** The first is paused now and then, the second waits, the others run; each uses half a core. */
  job(index) {
    const begun = (this.started ??= this.now);
    const state = index === 1 ? "waiting" : index === 0 && this.step % 20 < 5 ? "paused" : "running";
    const used = state === "waiting" ? 0 : (this.now - begun) / 2;
    return {
      id: `render-${index + 1}`,
      state,
      detail: state === "waiting" ? "others would lose more utility than it would gain by running now" : "",
      command: ["povray"],
      class: null,
      submitted: begun * 1e9,
      deadline: (begun + 600) * 1e9,
      expected_end: (begun + 400) * 1e9,
      utility: 0.3 - 0.2 * index,
      began: begun * 1e9,
      // The first moves from node to node, the third has a task on each of two.
      node: state === "waiting" ? null : this.nodes[index === 0 ? Math.floor(this.step / 20) % 2 : 0],
      tasks: index === 2 ? 2 : 1,
      nodes: state === "waiting" ? [] : index === 2 ? this.nodes.slice(0, 2) : [],
      attempt: 1,
      cpu_used: used,
      work: 200,
      work_source: "as submitted",
      progress: Math.min(1, used / 200),
      cpu_allocated: state === "running" ? 0.5 : 0,
      cpus: 1,
      memory_limit: 2 ** 26,
      memory_used: null,
      end: null,
    };
  }

  sample(status) {
    const apps = status.apps.map((app) => ({ ...app, ready: 1 }));
    return { time: status.time, span_s: 2, flows: status.flows, nodes: status.nodes, apps, jobs: status.jobs };
  }
}
