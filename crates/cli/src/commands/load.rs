//! `weal load`: makes load and measures what comes back, without coordinated omission.

mod chart;

use std::fs::File;
use std::io::BufReader;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::Uri;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::watch;
use weal_load::{FlowResult, LoadFlow, LoadResult, Options, Progress, Request, Source, access_log, drive, flows_of};
use weal_model::naming::is_name;
use weal_model::written::parse_rate;
use weal_scenario::Scenario;
use weal_scenario::workload::{Phase, TraceWindow, Workload, read_requests_per_minute};

use self::chart::Chart;
use crate::args::{Load, PoolArgs};
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output::{self, Stream, Table, Tone, cell, milliseconds, toned};
use crate::state::StateDir;
use crate::supervisor::urls_of;
use crate::values::{header, span};

/// Runs it.
pub fn run(order: &Load, json: bool) -> anyhow::Result<()> {
    let options =
        Options { seed: order.seed, duration: span(&order.duration)?, timeout: span(&order.timeout)?, ..Options::default() };
    let outcome = runtime()?.block_on(async {
        let (flows, options) = match &order.scenario {
            Some(file) => of_scenario(file, &order.target, options).await?,
            None => (vec![of_arguments(order, &asked(order).await?)?], options),
        };
        drive_shown(&flows, &options).await
    })?;
    show(&outcome, json)?;
    judge(&outcome)
}

/// Requests that were refused have an answer; those that failed have none that is worth one.
///
/// # Errors
/// Some failed, or none was answered well.
fn judge(outcome: &LoadResult) -> anyhow::Result<()> {
    let sum = |count: fn(&FlowResult) -> u64| outcome.flows.iter().map(count).sum::<u64>();
    let failed = sum(failures);
    match (sum(|flow| flow.sent), sum(|flow| flow.answered)) {
        _ if failed > 0 => bail!("{failed} requests failed"),
        (sent, 0) if sent > 0 => bail!("none of {sent} requests was answered with 2xx or 3xx"),
        _ => Ok(()),
    }
}

fn failures(flow: &FlowResult) -> u64 {
    flow.failed + flow.timed_out + flow.broken
}

/// What is asked for, and what counts as within the goal.
struct Asked {
    url: String,
    within: Option<Duration>,
}

/// A URL as it is; of an application's name its first URL, and the goal of that.
async fn asked(order: &Load) -> anyhow::Result<Asked> {
    let within = order.within.as_deref().map(span).transpose()?;
    let named = order.url.clone().unwrap_or_default();
    if !is_name(&named) {
        return Ok(Asked { url: named, within });
    }
    let view = Client::new(&StateDir::find(&order.target)?).config().await.map_err(crate::client::Error::into_failure)?;
    let spec = view.spec.context("the pool has no config yet")?;
    let app = spec.apps.get(named.as_str()).with_context(|| {
        let names: Vec<&str> = spec.apps.keys().map(|name| name.as_str()).collect();
        format!("there is no application `{named}`, but {}", names.join(", "))
    })?;
    let url = urls_of(&spec, app).into_iter().find(|url| url.starts_with("http://"));
    let goal = app.routes.first().and_then(|route| spec.classes.get(&route.class)?.goal?.target_s());
    let within = within.or(goal.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()));
    Ok(Asked { url: url.with_context(|| format!("`{named}` has no route that a URL could name"))?, within })
}

/// A runtime with a thread per core: making load is work.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")
}

/// Makes the load with a progress bar on standard error, if a person looks. Ctrl-C ends it.
pub async fn drive_shown(flows: &[LoadFlow], options: &Options) -> anyhow::Result<LoadResult> {
    let (sender, mut progress) = watch::channel(Vec::<Progress>::new());
    let bar = if output::is_terminal(Stream::Err) { ProgressBar::new(options.duration.as_secs()) } else { ProgressBar::hidden() };
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {elapsed} of {len}s\n{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut chart = Chart::default();
    let load = drive(flows, options, &sender);
    tokio::pin!(load);
    let outcome = loop {
        tokio::select! {
            outcome = &mut load => break outcome?,
            changed = progress.changed() => {
                if changed.is_ok() {
                    bar.set_position(bar.elapsed().as_secs());
                    chart.handle_progress(bar.elapsed(), &progress.borrow());
                    bar.set_message(chart.text());
                }
            }
            _ = tokio::signal::ctrl_c() => bail!("interrupted before the first measurement ended"),
        }
    };
    bar.finish_and_clear();
    Ok(outcome)
}

async fn of_scenario(file: &Path, target: &PoolArgs, options: Options) -> anyhow::Result<(Vec<LoadFlow>, Options)> {
    let (scenario, _) = read_scenario(file)?;
    let status = Client::new(&StateDir::find(target)?).status().await.map_err(crate::client::Error::into_failure)?;
    let flows = flows_of(&scenario, gateway_of(&status.listen)?, &status);
    let duration = Duration::from_secs_f64(scenario.duration_s);
    Ok((flows, Options { duration, seed: scenario.seed, ..options }))
}

/// Reads a scenario file, with its text.
///
/// # Errors
/// The first mistake, with file, line and column.
pub fn read_scenario(file: &Path) -> anyhow::Result<(Scenario, String)> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the scenario {}", file.display()))?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let scenario = Scenario::parse(&text, |name| std::fs::read_to_string(folder.join(name)));
    let scenario = scenario.map_err(|error| {
        Failure::new(Exit::ConfigInvalid, format!("{}:{}:{}: {}", file.display(), error.line, error.column, error.mistake))
    })?;
    Ok((scenario, text))
}

/// The gateway's address from `http://ADDRESS` in a status.
pub fn gateway_of(listen: &str) -> anyhow::Result<SocketAddr> {
    let address = listen.strip_prefix("http://").unwrap_or(listen).trim_end_matches('/');
    address.parse().with_context(|| format!("the pool's address {listen} cannot be read"))
}

fn of_arguments(order: &Load, Asked { url, within }: &Asked) -> anyhow::Result<LoadFlow> {
    let uri: Uri =
        url.parse().with_context(|| format!("`{url}` is neither a URL (http://HOST[:PORT]/PATH) nor an application's name"))?;
    if uri.scheme_str() != Some("http") {
        bail!(Failure::new(Exit::Usage, format!("`{url}` does not begin with http://")));
    }
    let authority = uri.authority().context("the URL has no host")?;
    let request = Request {
        address: resolve(authority.host(), authority.port_u16().unwrap_or(80))?,
        host: authority.to_string(),
        method: order.method.clone(),
        path: url.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| rest[at..].to_owned())).unwrap_or("/".into()),
        headers: order.headers.iter().map(|line| header(line)).collect::<Result<_, _>>()?,
        body: bytes::Bytes::new(),
    };
    Ok(LoadFlow { name: authority.host().to_owned(), request, source: source(order)?, pages: Vec::new(), target: *within })
}

fn source(order: &Load) -> anyhow::Result<Source> {
    let phases = |level| vec![Phase { start_s: 0.0, level }];
    if !(order.speed > 0.0 && order.speed.is_finite()) {
        bail!(Failure::new(Exit::Usage, "--speed must be a positive number"));
    }
    if let Some(sessions) = order.sessions {
        let think_s = span(&order.think)?.as_secs_f64();
        return Ok(Source::Workload(Workload::Sessions { phases: phases(f64::from(sessions)), think_s }));
    }
    if let Some(file) = &order.trace {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the trace {}", file.display()))?;
        let window =
            TraceWindow { from: order.from.clone(), minutes: order.minutes, time_scale: order.speed, volume_scale: order.volume };
        let workload = read_requests_per_minute(&text, &window).with_context(|| format!("cannot use {}", file.display()))?;
        return Ok(Source::Workload(workload));
    }
    if let Some(file) = &order.log {
        let source = File::open(file).with_context(|| format!("cannot read the log {}", file.display()))?;
        let log = access_log::read(BufReader::new(source)).with_context(|| format!("cannot read the log {}", file.display()))?;
        if let Some((line, text)) = &log.first_unreadable {
            let (file, count) = (file.display(), log.unreadable);
            output::complain(&format!(
                "{file}: left out {count} lines that are not requests, the first is line {line}: {text:?}"
            ));
        }
        if log.entries.is_empty() {
            bail!("{} has no line in Common or Combined Log Format", file.display());
        }
        return Ok(Source::Log { entries: log.entries.into(), speed: order.speed });
    }
    let rate = order.rate.as_deref().ok_or_else(|| {
        Failure::new(Exit::Usage, "say how much: --rate 50/s, --sessions 20, --trace FILE, --log FILE or --scenario FILE")
    })?;
    Ok(Source::Workload(Workload::Open { phases: phases(parse_rate(rate)?) }))
}

/// `*.localhost` is this machine (RFC 6761), also where the system's resolver does not know.
fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let name = if host == "localhost" || host.ends_with(".localhost") { "127.0.0.1" } else { host };
    let mut found = (name, port).to_socket_addrs().with_context(|| format!("cannot find {host}"))?;
    found.next().with_context(|| format!("{host} has no address"))
}

/// Prints what was measured.
pub fn show(outcome: &LoadResult, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(outcome, false);
    }
    let mut table = Table::new(&["FLOW", "SENT", "ANSWERED", "REJECTED", "FAILED", "MEAN", "P50", "P95", "P99", "WITHIN GOAL"]);
    for flow in &outcome.flows {
        let failed = failures(flow);
        let within = flow.within_goal.map_or("-".into(), |share| format!("{:.1}%", share * 100.0));
        table.row(vec![
            cell(&flow.name),
            cell(flow.sent.to_string()),
            cell(flow.answered.to_string()),
            cell(flow.rejected.to_string()),
            if failed > 0 { toned(failed.to_string(), Tone::Bad) } else { cell("0") },
            cell(milliseconds(flow.response.mean_ms)),
            cell(milliseconds(flow.response.p50_ms)),
            cell(milliseconds(flow.response.p95_ms)),
            cell(milliseconds(flow.response.p99_ms)),
            cell(within),
        ]);
    }
    output::print(&table.render());
    for flow in outcome.flows.iter().filter(|flow| flow.answered < flow.sent) {
        output::line(&format!("{}: {}", flow.name, endings(flow)));
    }
    for flow in outcome.flows.iter().filter(|flow| flow.generator_overloaded) {
        output::line(&format!(
            "{}: the generator could not keep up ({} requests not sent, 1% left over {} late): its numbers are about the generator too",
            flow.name,
            flow.not_sent,
            milliseconds(flow.late_p99_ms)
        ));
    }
    Ok(())
}

/// How the requests of `flow` ended: by status, and without one.
fn endings(flow: &FlowResult) -> String {
    let statuses = flow.statuses.iter().map(|(status, count)| (format!("with {status}"), *count));
    let others = [("not in time".to_owned(), flow.timed_out), ("by a broken connection".to_owned(), flow.broken)];
    let all = statuses.chain(others.into_iter().filter(|(_, count)| *count > 0));
    all.map(|(how, count)| format!("{count} {how}")).collect::<Vec<_>>().join(", ")
}
