//! `[pool]`, `[[node]]` and the parts of `[class.NAME]`.

use std::net::SocketAddr;
use std::path::Path;

use toml::de::DeValue;
use weal_model::{
    Algorithm, Bytes, ClientPolicy, Cpu, Enactment, Goal, GoalError, Importance, NodeName, NodeSpec, OverloadLimit, PoolSpec,
    TimingSpec,
};

use super::address::read_address;
use super::clients;
use super::listen::{self, ListenAddresses};
use super::logs_to;
use super::names::check_name;
use super::{api_tls, tls};
use crate::machine::MachineSize;
use crate::section::{Reading, Section, within};
use crate::{defaults, suggest};

/// Everything that stands in `[pool]`, with what it says about TLS; nodes, classes, applications and certificates are left empty.
pub(super) fn read(reading: &mut Reading, root: &Section, folder: &Path) -> (PoolSpec, (Option<SocketAddr>, tls::PoolKeys)) {
    let empty = toml::de::DeTable::new();
    let table = root.table(reading, "pool").unwrap_or(&empty);
    let known = [
        "listen",
        "https-redirect",
        "tls-min-version",
        "api",
        "api-tls",
        "api-insecure",
        "name",
        "user",
        "watch",
        "logs-to",
        "metrics-to",
        "traces-to",
        "control",
        "placement",
        "autoscaler-speed",
        "enactment",
        "overload-limit",
        "flow-cycle",
        "placement-cycle",
        "trusted-proxies",
        "accept-proxy",
        "compression",
        "access-log",
        "traceparent",
        "trace-ratio",
        "unlimited-clients",
        "client-connections",
        "client-rate",
        "client-seats",
        "client-min-rate",
    ];
    let section = Section::open(reading, "pool", table, &known);
    let folder_name = || folder.file_name().map_or("pool".to_owned(), |name| name.to_string_lossy().into_owned());
    warn_of_user(reading, &section);
    let ListenAddresses { http, https } = listen::read(reading, &section);
    let keys = tls::read_pool_keys(reading, &section);
    let traces_to = logs_to::read_collector(reading, &section, "traces-to");
    let spec = PoolSpec {
        name: read_pool_name(reading, &section).unwrap_or_else(folder_name),
        listen: http,
        tls: None,
        api: read_address(reading, &section, "api", defaults::API),
        api_tls: api_tls::read(reading, &section, folder),
        api_insecure: section.flag(reading, "api-insecure").unwrap_or(false),
        watch: section.flag(reading, "watch").unwrap_or(false),
        logs_to: logs_to::read(reading, &section),
        metrics_to: logs_to::read_collector(reading, &section, "metrics-to"),
        traces_to: traces_to.clone(),
        control: read_control(reading, &section),
        placement: read_placement(reading, &section),
        autoscaler_speed: read_speed(reading, &section),
        enactment: read_enactment(reading, &section),
        overload_limit: read_overload_limit(reading, &section),
        clients: ClientPolicy { spans: traces_to.is_some(), ..clients::read(reading, &section) },
        timing: TimingSpec {
            flow_cycle_s: section.span(reading, "flow-cycle", (0.1, 60.0)).unwrap_or(defaults::FLOW_CYCLE_S),
            placement_cycle_s: section.span(reading, "placement-cycle", (0.1, 3600.0)).unwrap_or(defaults::PLACEMENT_CYCLE_S),
        },
        nodes: Vec::new(),
        classes: Default::default(),
        apps: Default::default(),
        jobs: Default::default(),
        notify: Vec::new(),
    };
    (spec, (https, keys))
}

/// Configs of earlier versions name one user for the gateway and the controller.
fn warn_of_user(reading: &mut Reading, section: &Section) {
    if section.item("user").is_some() {
        let help = "leave it out: the gateway and the controller each have a user of their own, which no application shares";
        reading.findings.warning(reading.places.value("pool.user"), "`user` in [pool] does nothing any more", help);
    }
}

fn read_pool_name(reading: &mut Reading, section: &Section) -> Option<String> {
    let name = section.text(reading, "name")?;
    if name.trim().is_empty() || name.chars().any(char::is_control) || name.chars().count() > 80 {
        let help = "write one line of 1 to 80 characters, or leave it out: the folder's name is used";
        reading.findings.error(reading.places.value("pool.name"), "this cannot be the pool's name", help);
        return None;
    }
    Some(name)
}

/// The name of a system user, or its number.
pub(super) fn read_user(reading: &mut Reading, section: &Section) -> Option<String> {
    let user = section.text(reading, "user")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if user.is_empty() || user.len() > 32 || user.starts_with('-') || !user.chars().all(fits) {
        let help = "write the name or the number of a user of this system, such as `www-data`";
        reading.findings.error(reading.places.value(&section.at("user")), format!("`{user}` cannot be a user"), help);
        return None;
    }
    Some(user)
}

fn read_control(reading: &mut Reading, section: &Section) -> bool {
    let Some(item) = section.item("control") else { return true };
    match item.value {
        DeValue::String(word) if word == "on" => true,
        DeValue::String(word) if word == "off" => false,
        DeValue::Boolean(flag) => {
            let right = if *flag { "on" } else { "off" };
            item.wrong_type(reading, "`\"on\"` or `\"off\"`", &format!("did you mean `\"{right}\"`?")).unwrap_or(true)
        }
        DeValue::String(word) => {
            reading.findings.error(item.span, format!("`control` cannot be `{word}`"), "write `\"on\"` or `\"off\"`");
            true
        }
        _ => item.wrong_type(reading, "`\"on\"` or `\"off\"`", "").unwrap_or(true),
    }
}

fn read_placement(reading: &mut Reading, section: &Section) -> Algorithm {
    let all = Algorithm::WORDS.map(|(_, algorithm)| algorithm);
    section.word(reading, "placement", all, Algorithm::word, "algorithms").unwrap_or_default()
}

fn read_speed(reading: &mut Reading, section: &Section) -> f64 {
    let speed = section.number(reading, "autoscaler-speed").unwrap_or(defaults::AUTOSCALER_SPEED);
    if !(0.1..=1000.0).contains(&speed) {
        let help = "write how many times as fast as Kubernetes' defaults, from 0.1 to 1000";
        reading.findings.error(reading.places.value("pool.autoscaler-speed"), "`autoscaler-speed` is out of range", help);
    }
    speed
}

fn read_enactment(reading: &mut Reading, section: &Section) -> Enactment {
    section.word(reading, "enactment", Enactment::ALL, Enactment::as_str, "ways").unwrap_or_default()
}

fn read_overload_limit(reading: &mut Reading, section: &Section) -> OverloadLimit {
    section.word(reading, "overload-limit", OverloadLimit::ALL, OverloadLimit::as_str, "limits").unwrap_or_default()
}

/// All `[[node]]`s; the machine itself when there is none.
pub(super) fn read_nodes(reading: &mut Reading, root: &Section, machine: &MachineSize) -> Vec<NodeSpec> {
    let Some(item) = root.item("node") else { return vec![whole_machine(machine)] };
    if let DeValue::Table(_) = item.value {
        let help = "write `[[node]]` with double brackets and a `name`, once for each node";
        reading.findings.error(reading.places.key("node"), "`node` is a list of tables", help);
        return vec![whole_machine(machine)];
    }
    let items = item.list(reading).unwrap_or_default();
    let mut nodes: Vec<NodeSpec> = Vec::new();
    for entry in items {
        let Some(table) = entry.table(reading) else { continue };
        let section = Section::open(reading, &entry.path, table, &["name", "cpu", "memory", "utilization-limit"]);
        for key in ["name", "cpu", "memory"] {
            if section.item(key).is_none() {
                let help = format!(
                    "add `{key} = {}`",
                    if key == "cpu" {
                        "1.0"
                    } else if key == "name" {
                        "\"n1\""
                    } else {
                        "\"2GiB\""
                    }
                );
                reading.findings.error(entry.span.clone(), format!("this node has no `{key}`"), help);
            }
        }
        let node = read_node(reading, &section, machine);
        if nodes.iter().any(|earlier| earlier.name == node.name) {
            let name = &node.name;
            let first = reading.places.value(&format!("node.{name}.name"));
            reading.findings.error_with(
                reading.places.value(&section.at("name")),
                format!("there are two nodes `{name}`"),
                "rename one of them".to_owned(),
                (first, "the first one".to_owned()),
            );
            continue;
        }
        for key in ["name", "cpu", "memory"] {
            let (from, to) = (section.at(key), format!("node.{}.{key}", node.name));
            if section.item(key).is_some() {
                reading.places.remember(to, reading.places.key(&from), reading.places.value(&from));
            }
        }
        nodes.push(node);
    }
    if nodes.is_empty() { vec![whole_machine(machine)] } else { nodes }
}

fn read_node(reading: &mut Reading, section: &Section, machine: &MachineSize) -> NodeSpec {
    let name = section.text(reading, "name");
    if let Some(name) = &name {
        check_name(reading, "node", name, reading.places.value(&section.at("name")), &[]);
    }
    let limit = section.number(reading, "utilization-limit");
    if let Some(limit) = limit.filter(|limit| !(0.1..=1.0).contains(limit)) {
        let help = if limit > 1.0 && limit <= 100.0 {
            format!("did you mean `{}`? It is a share, from 0.1 to 1", limit / 100.0)
        } else {
            "write a share from 0.1 to 1".to_owned()
        };
        reading.findings.error(
            reading.places.value(&section.at("utilization-limit")),
            "`utilization-limit` is out of range",
            help,
        );
    }
    // A node without a name is told from the others by its place, so that it does not look like a second one of that name.
    NodeSpec {
        name: NodeName::from(name.unwrap_or_else(|| section.path.replace('.', "-"))),
        cpu: read_cpu(reading, section, "cpu").unwrap_or(Cpu(machine.cpus)),
        memory: section.size(reading, "memory").unwrap_or(machine.memory),
        utilization_limit: limit.unwrap_or(defaults::UTILIZATION_LIMIT),
    }
}

/// `cpu = 0.5`, in cores.
pub(super) fn read_cpu(reading: &mut Reading, section: &Section, key: &str) -> Option<Cpu> {
    let cores = section.number(reading, key)?;
    if !(0.01..=4096.0).contains(&cores) {
        let place = reading.places.value(&section.at(key));
        reading.findings.error(place, format!("`{key}` is out of range"), "write a number of cores from 0.01 to 4096");
        return None;
    }
    Some(Cpu(cores))
}

fn whole_machine(machine: &MachineSize) -> NodeSpec {
    let memory = (machine.memory.0 as f64 * defaults::MACHINE_MEMORY_SHARE) as u64 / Bytes::MIB * Bytes::MIB;
    NodeSpec {
        name: NodeName::from(defaults::NODE),
        cpu: Cpu(machine.cpus),
        memory: Bytes(memory.max(Bytes::MIB)),
        utilization_limit: defaults::UTILIZATION_LIMIT,
    }
}

/// A goal, at the precision that it is shown with: everything that shows it shows what is in force.
pub(super) fn read_goal(reading: &mut Reading, section: &Section) -> Option<Goal> {
    let text = section.text(reading, "goal")?;
    let place = reading.places.value(&section.at("goal"));
    match text.parse::<Goal>() {
        Ok(goal) => match goal.to_string().parse() {
            Ok(shown) => Some(shown),
            Err(_) => {
                reading.findings.error(place, format!("`{text}` cannot be measured"), "times are measured in microseconds");
                None
            }
        },
        Err(error) => {
            let (part, help) = goal_help(&error, &text);
            let span = within(reading.findings.source(&place), &place, &part);
            reading.findings.error(span, error.to_string(), help);
            None
        }
    }
}

/// The wrong part of a goal, and the goal that was probably meant.
fn goal_help(error: &GoalError, text: &str) -> (String, String) {
    let forms = "goals look like `p95 < 250ms`, `mean < 1200ms` or `throughput > 50/s`".to_owned();
    match error {
        GoalError::NoComparison => (text.to_owned(), forms),
        GoalError::UnknownMeasure(measure) => {
            let right = match measure.as_str() {
                "median" => Some("p50"),
                "average" | "avg" => Some("mean"),
                "rate" | "rps" => Some("throughput"),
                other => suggest::meant(other, ["mean", "throughput"]),
            };
            let help = right.map_or(forms, |right| format!("did you mean `{}`?", text.replacen(measure.as_str(), right, 1)));
            (measure.clone(), help)
        }
        GoalError::Percentile(percentile) => {
            (percentile.clone(), "p95 is the time that 95 of 100 requests stay below".to_owned())
        }
        GoalError::Direction { right, .. } => {
            let wrong = if *right == '<' { ">" } else { "<" };
            (wrong.to_owned(), format!("did you mean `{}`?", text.replacen(wrong, &right.to_string(), 1)))
        }
        GoalError::Span(value) | GoalError::Rate(value) => {
            let unit = if matches!(error, GoalError::Span(_)) { "ms" } else { "/s" };
            let is_number = value.parse::<f64>().is_ok_and(|number| number > 0.0);
            (value.clone(), if is_number { format!("did you mean `{text}{unit}`?") } else { forms })
        }
    }
}

/// A word or a weight.
pub(super) fn read_importance(reading: &mut Reading, section: &Section) -> Importance {
    let Some(item) = section.item("importance") else { return Importance::NORMAL };
    let words: Vec<&str> = Importance::WORDS.iter().map(|(word, _)| *word).collect();
    let read = if let DeValue::String(word) = item.value {
        let read = Importance::from_word(word);
        if read.is_none() {
            let help = suggest::help(word, words.iter().copied(), "words");
            reading.findings.error(item.span, format!("unknown importance `{word}`"), help);
        }
        read
    } else {
        let Some(weight) = item.number(reading) else { return Importance::NORMAL };
        let read = Importance::from_weight(weight);
        if read.is_none() {
            let help = format!("write a weight from 0.001 to 1000, or one of {}", suggest::list(&words));
            reading.findings.error(item.span, format!("importance {weight} is out of range"), help);
        }
        read
    };
    read.unwrap_or(Importance::NORMAL)
}
