//! `weal rehearse`: a scenario with real processes.
//!
//! The pool is a whole one of its own, on free ports and in a temporary state directory: a rehearsal disturbs no other. Several
//! seeds and several ways of running it are run one after the other, each in a pool of its own.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use toml_edit::{DocumentMut, Item, value};
use weal_load::{Options, Rehearsal, flows_of};
use weal_model::Algorithm;
use weal_protocol::controller::ConfigUpdate;
use weal_scenario::report::{self, BesideSimulation, Comparison, Run, difference};
use weal_scenario::{Fault, FaultKind, Scenario};

use crate::args::Rehearse;
use crate::client::{Client, Error};
use crate::commands::{load, rehearsed_jobs, simulate};
use crate::failure::{Exit, Failure};
use crate::output::{self, Table, cell};
use crate::state::StateDir;
use crate::values::{Switch, Variation};

/// Between two looks at the pool.
const LOOK: Duration = Duration::from_secs(1);

/// Runs it, as often as the order says.
pub fn run(order: &Rehearse, json: bool) -> anyhow::Result<()> {
    let rehearsal = Order::read(order)?;
    let variants = variants(order);
    if let ([(_, variant)], 1) = (&variants[..], order.seeds) {
        let run = rehearsal.run(variant, rehearsal.scenario.seed)?;
        if order.beside_simulation {
            return rehearsal.beside_simulation(order, &run, json);
        }
        rehearsal.write_report(&run.to_html())?;
        if json {
            output::json(&run, false)?
        } else {
            rehearsal.show(&run)
        }
        return judge(order, run.all_met());
    }
    let mut comparison = Comparison {
        variants: variants.iter().map(|(name, _)| report::Variant { name: name.clone(), runs: Vec::new() }).collect(),
    };
    // Seed by seed, so that what slows the machine for a while slows all variants.
    for seed in (0..order.seeds).map(|more| rehearsal.scenario.seed.wrapping_add(more)) {
        for (at, (name, variant)) in variants.iter().enumerate() {
            output::complain(&format!("{name}, seed {seed}"));
            comparison.variants[at].runs.push(rehearsal.run(variant, seed)?);
            // What is done is kept, whatever becomes of the next.
            rehearsal.write_report(&comparison.to_html())?;
        }
    }
    if json {
        output::json(&comparison, false)?
    } else {
        rehearsal.show_comparison(&comparison)
    }
    judge(order, comparison.all_met())
}

fn judge(order: &Rehearse, met: bool) -> anyhow::Result<()> {
    if order.check && !met {
        bail!("expectations were missed");
    }
    Ok(())
}

/// The ways to run it, with their names: first that of the flags.
fn variants(order: &Rehearse) -> Vec<(String, Variant)> {
    let base = Variant { control: order.control, placement: order.placement, autoscaler_speed: order.autoscaler_speed };
    let other = |variation: &Variation| match variation {
        Variation::Control(control) => Variant { control: *control, ..base },
        Variation::Placement(placement) => Variant { placement: Some(*placement), ..base },
    };
    let all = std::iter::once(base).chain(order.compare.iter().map(other));
    all.map(|variant| (variant.name(), variant)).collect()
}

/// What is rehearsed.
struct Order {
    scenario: Scenario,
    text: String,
    title: String,
    /// Where the scenario is.
    folder: PathBuf,
    config: PathBuf,
    report: PathBuf,
}

impl Order {
    fn read(order: &Rehearse) -> anyhow::Result<Self> {
        let (mut scenario, text) = load::read_scenario(&order.scenario)?;
        scenario.seed = order.seed.unwrap_or(scenario.seed);
        let config = scenario.config.clone().ok_or_else(|| {
            Failure::new(Exit::ConfigInvalid, format!("{} has no `config`: it can only be simulated", order.scenario.display()))
        })?;
        refuse_what_is_simulated(&scenario)?;
        let config = simulate::config_of(&order.scenario, config.as_ref())?;
        let title = order.scenario.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let report = order.report.clone().unwrap_or_else(|| PathBuf::from(format!("{title}.html")));
        let folder = std::path::absolute(&order.scenario)?.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { scenario, text, title, folder, config, report })
    }

    fn run(&self, variant: &Variant, seed: u64) -> anyhow::Result<Run> {
        let scenario = Scenario { seed, ..self.scenario.clone() };
        let pool = Pool::start(&self.config, variant, !scenario.jobs.is_empty())?;
        let run = load::runtime()?.block_on(pool.rehearse(scenario, self));
        pool.stop();
        run
    }

    fn write_report(&self, page: &str) -> anyhow::Result<()> {
        fs::write(&self.report, page).with_context(|| format!("cannot write the report {}", self.report.display()))
    }

    fn show(&self, run: &Run) {
        simulate::show_checks(run);
        output::line(&format!("report: {}", self.report.display()));
    }

    /// Simulates the same, and shows how far that is from what was measured.
    fn beside_simulation(&self, order: &Rehearse, real: &Run, json: bool) -> anyhow::Result<()> {
        let (mut scenario, _) = simulate::read(&order.scenario)?;
        scenario.seed = self.scenario.seed;
        scenario.pool.control &= order.control == Switch::On;
        scenario.pool.placement = order.placement.unwrap_or(scenario.pool.placement);
        let simulated = simulate::simulate_shown(&scenario)?;
        let beside = BesideSimulation::of(real, &simulated.run, scenario.warm_up_s);
        self.write_report(&beside.to_html(real, &simulated.run))?;
        if json {
            return output::json(&beside, false);
        }
        let mut table = Table::new(&["FLOW OR JOB", "", "REAL", "SIMULATED", "DIFFERENCE"]);
        for (whose, what, (was, is)) in beside.figures() {
            let apart = format!("{:+.1}%", 100.0 * difference((was, is)));
            table.row(vec![cell(whose), cell(what), cell(format!("{was:.1}")), cell(format!("{is:.1}")), cell(apart)]);
        }
        output::print(&table.render());
        output::line(&format!("report: {}", self.report.display()));
        simulate::sound(&simulated)
    }

    fn show_comparison(&self, comparison: &Comparison) {
        let names = comparison.variants.iter().map(|variant| variant.name.to_uppercase());
        let heads: Vec<String> = ["WHAT".into(), "EXPECTED".into()].into_iter().chain(names).collect();
        let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
        for figure in comparison.figures() {
            let spreads = figure.spreads.iter().map(|spread| cell(spread.map_or("-".into(), |spread| spread.to_string())));
            table.row([cell(&figure.what), cell(&figure.expected)].into_iter().chain(spreads).collect());
        }
        output::print(&table.render());
        output::line(&format!("report: {}", self.report.display()));
    }
}

/// With real processes only nodes can be taken away, and a job is one process; the rest is for simulations.
fn refuse_what_is_simulated(scenario: &Scenario) -> anyhow::Result<()> {
    rehearsed_jobs::refuse_what_is_simulated(scenario)?;
    match scenario.faults.iter().find(|fault| fault.kind != FaultKind::NodeDown || fault.node.is_none()) {
        Some(fault) => bail!(Failure::new(
            Exit::ConfigInvalid,
            format!("the fault {:?} can only be simulated: with real processes there is `node-down` with a `node`", fault.kind)
        )),
        None => Ok(()),
    }
}

/// How a rehearsal's pool differs from the config.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Variant {
    control: Switch,
    placement: Option<Algorithm>,
    autoscaler_speed: Option<f64>,
}

impl Variant {
    fn name(&self) -> String {
        match (self.control, self.placement) {
            (Switch::Off, _) => "control off".into(),
            (Switch::On, placement) => placement.unwrap_or_default().word().into(),
        }
    }
}

/// A pool that exists for one rehearsal.
struct Pool {
    folder: PathBuf,
    config: PathBuf,
    state: StateDir,
}

impl Pool {
    fn start(original: &Path, variant: &Variant, has_jobs: bool) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("weal-rehearsal-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // The gateway and the controller may run as another user, who must get through to their own folders.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o711))?;
        let pool = Self { config: folder.join("weal.toml"), state: StateDir { root: folder.join("state") }, folder };
        let started = pool.write_config(original, variant, has_jobs).and_then(|()| pool.weal(&["up", "--detach"]));
        match started {
            Ok(()) => Ok(pool),
            Err(error) => {
                pool.stop();
                Err(error.context("the pool did not come up"))
            }
        }
    }

    fn write_config(&self, original: &Path, variant: &Variant, has_jobs: bool) -> anyhow::Result<()> {
        let text = fs::read_to_string(original).with_context(|| format!("cannot read the config {}", original.display()))?;
        let folder = std::path::absolute(original)?.parent().map(Path::to_owned).unwrap_or_default();
        let mut document = moved(&text, &folder, variant)?;
        if has_jobs {
            rehearsed_jobs::add_classes(&mut document);
        }
        fs::write(&self.config, document.to_string())?;
        Ok(())
    }

    async fn rehearse(&self, scenario: Scenario, Order { title, text, folder, .. }: &Order) -> anyhow::Result<Run> {
        let client = Client::new(&self.state);
        let status = client.status().await.map_err(Error::into_failure)?;
        let flows = flows_of(&scenario, load::gateway_of(&status.listen)?, &status);
        let options =
            Options { seed: scenario.seed, duration: Duration::from_secs_f64(scenario.duration_s), ..Options::default() };
        let faults = scenario.faults.clone();
        let mut coming = rehearsed_jobs::coming(&scenario, folder)?;
        let begun = tokio::time::Instant::now();
        let mut rehearsal = Rehearsal::begin(scenario, title, text, machine(), output::now());
        let mut seen = 0;
        let outcome = {
            // A scenario of jobs alone makes no load, and takes as long.
            let making = async { tokio::join!(load::drive_shown(&flows, &options), tokio::time::sleep(options.duration)).0 };
            tokio::pin!(making);
            let breaking = self.break_nodes(&faults, &client);
            tokio::pin!(breaking);
            let mut broken = false;
            let mut tick = tokio::time::interval(LOOK);
            loop {
                tokio::select! {
                    outcome = &mut making => break outcome?,
                    result = &mut breaking, if !broken => {
                        result?;
                        broken = true;
                    }
                    () = until_next(begun, coming.front()), if !coming.is_empty() => {
                        if let Some(job) = coming.pop_front() {
                            let taken = client.submit(&job.submission).await.map_err(Error::into_failure)?;
                            rehearsal.handle_submitted(job.spec, taken.job.id);
                        }
                    }
                    _ = tick.tick() => seen = look(&client, &mut rehearsal, seen).await,
                }
            }
        };
        look(&client, &mut rehearsal, seen).await;
        Ok(rehearsal.finish(&outcome))
    }

    /// Takes nodes away and gives them back, each when its time has come, by another config.
    async fn break_nodes(&self, faults: &[Fault], client: &Client) -> anyhow::Result<()> {
        let start = tokio::time::Instant::now();
        let whole = fs::read_to_string(&self.config)?;
        let mut changes: Vec<f64> =
            faults.iter().flat_map(|fault| [fault.at_s, fault.until_s]).filter(|at| at.is_finite()).collect();
        changes.sort_by(f64::total_cmp);
        for at_s in changes {
            tokio::time::sleep_until(start + Duration::from_secs_f64(at_s)).await;
            let gone = faults.iter().filter(|fault| fault.at_s <= at_s && at_s < fault.until_s);
            let gone: Vec<&str> = gone.filter_map(|fault| fault.node.as_deref()).collect();
            let text = without_nodes(&whole, &gone)?;
            let path = self.config.to_string_lossy().into_owned();
            let order = ConfigUpdate { text, path, dry_run: false, refused: String::new(), origin: "weal rehearse".to_owned() };
            client.put_config(&order).await.map_err(Error::into_failure)?;
        }
        Ok(())
    }

    /// Runs this very program on the pool.
    fn weal(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let output = Command::new(program)
            .args(arguments)
            .arg("--file")
            .arg(&self.config)
            .arg("--state")
            .arg(&self.state.root)
            .stdin(Stdio::null())
            .output()
            .context("cannot start this program again")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// Stops it and removes what is left; says what could not be.
    fn stop(&self) {
        if let Err(error) = self.weal(&["down"]) {
            output::complain(&format!("the rehearsal's pool did not stop: {error}"));
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            output::complain(&format!("cannot remove {}: {error}", self.folder.display()));
        }
    }
}

/// Asks the pool how it is, and what happened after the event `seen`; gives the last event that is known then.
async fn look(client: &Client, rehearsal: &mut Rehearsal, mut seen: u64) -> u64 {
    if let Ok(status) = client.status().await {
        if rehearsal.has_jobs()
            && let Ok(jobs) = client.get("/v1/jobs?all=true&limit=10000").await
        {
            rehearsal.handle_jobs(status.time, jobs);
        }
        rehearsal.handle_status(&status);
    }
    for event in client.events(Some(seen), 1000).await.unwrap_or_default() {
        seen = seen.max(event.id);
        rehearsal.handle_event(&event);
    }
    seen
}

async fn until_next(begun: tokio::time::Instant, next: Option<&rehearsed_jobs::Coming>) {
    if let Some(job) = next {
        tokio::time::sleep_until(begun + Duration::from_secs_f64(job.spec.submitted.as_secs_f64())).await;
    }
}

/// The config as it must be in another folder, on free ports.
fn moved(text: &str, folder: &Path, variant: &Variant) -> anyhow::Result<DocumentMut> {
    let mut document: DocumentMut = text.parse().context("the config is not TOML")?;
    let pool = document.entry("pool").or_insert_with(toml_edit::table);
    for key in ["listen", "api"] {
        pool[key] = value(free_address()?);
    }
    if variant.control == Switch::Off {
        pool["control"] = value("off");
    }
    if let Some(placement) = variant.placement {
        pool["placement"] = value(placement.word());
    }
    if let Some(speed) = variant.autoscaler_speed {
        pool["autoscaler-speed"] = value(speed);
    }
    let apps = document.get_mut("app").and_then(Item::as_table_like_mut);
    for (_, app) in apps.into_iter().flat_map(|apps| apps.iter_mut()) {
        let relative = app.get("cwd").and_then(Item::as_str).unwrap_or(".").to_owned();
        app["cwd"] = value(folder.join(relative).to_string_lossy().into_owned());
    }
    Ok(document)
}

/// The config without some nodes: applications that name them name the others.
fn without_nodes(text: &str, gone: &[&str]) -> anyhow::Result<String> {
    let mut document: DocumentMut = text.parse().context("the config is not TOML")?;
    let is_gone = |name: Option<&str>| name.is_some_and(|name| gone.contains(&name));
    if let Some(nodes) = document.get_mut("node").and_then(Item::as_array_of_tables_mut) {
        nodes.retain(|node| !is_gone(node.get("name").and_then(Item::as_str)));
    }
    let apps = document.get_mut("app").and_then(Item::as_table_like_mut);
    for (_, app) in apps.into_iter().flat_map(|apps| apps.iter_mut()) {
        let Some(allowed) = app.get_mut("nodes").and_then(Item::as_array_mut) else { continue };
        allowed.retain(|node| !is_gone(node.as_str()));
        let left = i64::try_from(allowed.len()).unwrap_or(i64::MAX);
        let Some(instances) = app.get_mut("instances").and_then(Item::as_table_like_mut) else { continue };
        for bound in ["min", "max"] {
            if let Some(count) = instances.get_mut(bound)
                && count.as_integer().is_some_and(|count| count > left)
            {
                *count = value(left);
            }
        }
    }
    Ok(document.to_string())
}

fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0").context("no free port")?.local_addr()?.to_string())
}

fn machine() -> String {
    format!("{} cores, Linux {}", weal_host::machine::cpus().0, weal_host::Proc::system().kernel_release())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
[[node]]
name = "n1"
cpu = 1.0

[[node]]
name = "n2"
cpu = 1.0

[app.shop]
run = ["./shop"]
instances = { min = 2, max = 2 }
nodes = ["n1", "n2"]
"#;

    #[test]
    fn a_moved_config_finds_its_files_and_listens_elsewhere() {
        let variant = Variant { control: Switch::Off, placement: Some(Algorithm::Static), autoscaler_speed: Some(10.0) };
        let text = moved(CONFIG, Path::new("/srv/pool"), &variant).unwrap().to_string();
        assert!(text.contains("cwd = \"/srv/pool/.\""), "{text}");
        assert!(text.contains("placement = \"static\"\nautoscaler-speed = 10.0"), "{text}");
        assert!(text.contains("control = \"off\"") && text.contains("listen = \"127.0.0.1:"), "{text}");
    }

    #[test]
    fn a_node_that_is_gone_is_gone_everywhere() {
        let text = without_nodes(CONFIG, &["n2"]).unwrap();
        assert!(!text.contains("n2"), "{text}");
        assert!(text.contains("instances = { min = 1, max = 1 }"), "{text}");
        assert_eq!(without_nodes(CONFIG, &[]).unwrap(), CONFIG);
    }
}
