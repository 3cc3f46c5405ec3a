//! What an instance is started from.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};
use weal_model::{AppKind, AppName, AppSpec, InstanceId, NodeName, ProcessSpec, fnv1a, naming};
use weal_protocol::engine::Revision;
use weal_protocol::node::InstanceSpec;

/// What an instance of `app` is started from. `addresses` are those of the applications it needs; one without an
/// address leaves its variables out.
pub fn instance_spec(
    app: &AppSpec,
    instance: &InstanceId,
    node: &NodeName,
    addresses: &BTreeMap<AppName, SocketAddr>,
) -> InstanceSpec {
    let (mut env, mut needs) = (BTreeMap::new(), BTreeMap::new());
    for (needed, address) in app.needs.iter().filter_map(|needed| Some((needed, *addresses.get(needed)?))) {
        let whole = naming::variable(needed, "ADDR");
        if !app.env.contains_key(&whole) {
            needs.insert(needed.clone(), address);
        }
        env.insert(whole, address.to_string());
        env.insert(naming::variable(needed, "HOST"), address.ip().to_string());
        env.insert(naming::variable(needed, "PORT"), address.port().to_string());
    }
    env.extend(app.env.clone());
    InstanceSpec { env, needs, revision: revision(app).start, ..InstanceSpec::of(app, instance.clone(), node.clone()) }
}

/// The revision of `app`: when the first part differs, instances must be replaced; the second is what the agent takes over for a running
/// instance when it is told to start it again.
pub fn revision(app: &AppSpec) -> Revision {
    // Without a user an application has one of its own, which versions before ran as whoever ran weal: their instances are replaced.
    let user = app.user.as_deref().unwrap_or("its own");
    let mut parts = vec![
        json!(app.run),
        json!(app.env),
        json!(app.cwd),
        json!(user),
        json!(app.sandbox),
        json!(app.memory),
        json!(app.cpu_limit),
        json!(app.needs),
    ];
    // No instance is started with its reload signal: whoever runs `weal reload` sends it.
    let process = ProcessSpec { reload_signal: None, ..app.process.clone() };
    // Versions before did not know these keys: an application without them keeps its revision, and its instances.
    if process != ProcessSpec::default() {
        parts.push(json!(process));
    }
    if app.pass_socket {
        parts.push(json!("pass-socket"));
    }
    let start = digest(&json!(parts));
    // A task runs anew with each deploy.
    let start = if app.kind == AppKind::Task { format!("{start}-{}", app.deploy) } else { start };
    let rest = (&json!(app.health), &json!(app.restart), app.stop_timeout_s, app.on_resume.as_slice());
    Revision { start, settings: settings(rest, app.takes_datagrams()) }
}

/// The revision of an instance that runs, from what the agent says that it was started from.
pub(super) fn revision_of(spec: &InstanceSpec) -> Revision {
    let rest = (&json!(spec.health), &json!(spec.restart), spec.stop_timeout_s, spec.on_resume.as_slice());
    Revision { start: spec.revision.clone(), settings: settings(rest, spec.datagrams) }
}

/// What an instance takes over as it runs: its health check, when it is started again, how long it may take to stop, its hook, and whether it
/// takes datagrams. Versions before did not know the last.
fn settings(rest: (&Value, &Value, f64, &[String]), datagrams: bool) -> String {
    digest(&if datagrams { json!((rest, "datagrams")) } else { json!(rest) })
}

/// Nobody attacks these strings.
fn digest(value: &serde_json::Value) -> String {
    format!("{:016x}", fnv1a(value.to_string().as_bytes()))
}

#[cfg(test)]
mod tests {
    use weal_model::{RouteSpec, Transport, TransportPort};

    use super::*;

    #[test]
    fn a_revision_changes_with_what_a_process_is_started_from_and_apart_from_that_with_its_settings() {
        let first = AppSpec::example("shop");
        let mut same = first.clone();
        same.instances.max = 9;
        assert_eq!(revision(&first), revision(&same));
        let mut settings = first.clone();
        settings.stop_timeout_s += 1.0;
        assert_eq!(revision(&first).start, revision(&settings).start);
        assert_ne!(revision(&first).settings, revision(&settings).settings);
        let mut reloads = first.clone();
        reloads.process.reload_signal = Some(weal_model::ProcessSignal::Hup);
        assert_eq!(revision(&first), revision(&reloads), "whoever reloads it sends the signal");
        let mut masked = first.clone();
        masked.process.umask = Some(0o027);
        let mut both = masked.clone();
        both.process.reload_signal = Some(weal_model::ProcessSignal::Hup);
        assert_eq!(revision(&masked), revision(&both));
        let mut datagrams = first.clone();
        let port = TransportPort { transport: Transport::Udp, address: ([127, 0, 0, 1], 53).into() };
        datagrams.routes.push(RouteSpec { port: Some(port), ..RouteSpec::any("default".into()) });
        assert_eq!(revision(&first).start, revision(&datagrams).start);
        assert_ne!(revision(&first).settings, revision(&datagrams).settings, "the node agent is told to look who takes them");
        let spec = instance_spec(&datagrams, &"shop-1".into(), &"n1".into(), &BTreeMap::new());
        assert_eq!(revision_of(&spec), revision(&datagrams));
        let mut other = first.clone();
        other.env.insert("MODE".into(), "slow".into());
        assert_ne!(revision(&first).start, revision(&other).start);
        let given = AppSpec { pass_socket: true, ..first.clone() };
        assert_ne!(revision(&first).start, revision(&given).start);
    }

    #[test]
    fn an_instance_that_runs_has_the_revision_that_it_was_started_from() {
        let app = AppSpec::example("shop");
        let spec = instance_spec(&app, &"shop-1".into(), &"n1".into(), &BTreeMap::new());
        let told = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!(revision_of(&told), revision(&app));
    }

    #[test]
    fn an_address_that_the_config_gives_itself_is_not_followed() {
        let mut app = AppSpec::example("shop");
        app.needs = ["db".into(), "cache".into()].into();
        app.env.insert("CACHE_ADDR".into(), "10.0.0.1:1".into());
        let address: SocketAddr = "127.0.0.1:4002".parse().unwrap();
        let addresses = BTreeMap::from([("db".into(), address), ("cache".into(), address)]);
        let spec = instance_spec(&app, &"shop-1".into(), &"n1".into(), &addresses);
        assert_eq!(spec.needs, BTreeMap::from([("db".into(), address)]));
        assert_eq!(spec.env["CACHE_ADDR"], "10.0.0.1:1");
    }
}
