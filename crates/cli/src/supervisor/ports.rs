//! The sockets that the gateway listens at beside its own: ports of routes, and the inner addresses of applications that others need.
//!
//! An inner address is chosen by the system once and kept in the state directory, so that it outlives the pool's processes: instances have it
//! in their environment.
//!
//! Unlike a role's own sockets they come and go with the config, while the gateway runs. So the supervisor binds them and hands them over
//! through a socket that the gateway inherits. What it hands over is always complete. It keeps them open itself: clients wait in the backlog
//! while a gateway is started anew.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, anyhow};
use weal_model::{AppName, PoolSpec, Transport, TransportPort};
use weal_protocol::gateway::{Listener, Listeners};

use super::sockets::{bind_tcp, explain, inheritable, taken_over};
use crate::process::ProcessId;
use crate::state::StateDir;

/// The ports of one pool, shared by whoever starts the gateway and whoever follows the config.
#[derive(Debug, Clone)]
pub struct Ports(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    path: PathBuf,
    /// What the gateway reads from.
    handover: Option<UnixDatagram>,
    /// Those of the config.
    wanted: BTreeMap<TransportPort, AppName>,
    /// Applications that others need.
    needed: BTreeSet<AppName>,
    /// Where those are or were reached, as it stands in `file`.
    inner: BTreeMap<AppName, SocketAddr>,
    file: PathBuf,
    open: BTreeMap<Listener, OwnedFd>,
}

impl Ports {
    /// Those that `spec` names, none of them open yet.
    pub fn new(state: &StateDir, spec: &PoolSpec) -> Self {
        let file = state.inner_addresses();
        let inner = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let (wanted, needed) = (named(spec), needed(spec));
        let held = Held { path: state.ports_socket(), handover: None, wanted, needed, inner, file, open: BTreeMap::new() };
        Self(Arc::new(Mutex::new(held)))
    }

    /// Opens what is not open yet.
    ///
    /// # Errors
    /// A port cannot be had; says which, who holds it, and what to change.
    pub fn bind(&self) -> anyhow::Result<()> {
        let mut held = self.lock();
        if held.handover.is_none() {
            held.handover = Some(weal_rpc::bind_handover(&held.path)?);
        }
        held.open_wanted()
    }

    /// True when somebody has removed the socket of the hand-over.
    pub fn is_lost(&self) -> bool {
        let held = self.lock();
        held.handover.is_some() && !held.path.exists()
    }

    /// Lets go of the hand-over: the next [`Ports::bind`] makes another.
    pub fn let_go(&self) {
        self.lock().handover = None;
    }

    /// Opens those that `spec` names beside those that are open, and lets the gateway listen there. Until [`Ports::settle`], those of the
    /// config before stay open.
    ///
    /// # Errors
    /// As [`Ports::bind`]; nothing has changed then.
    pub fn widen(&self, spec: &PoolSpec) -> anyhow::Result<()> {
        let mut held = self.lock();
        let before = std::mem::replace(&mut held.wanted, named(spec));
        let needed_before = std::mem::replace(&mut held.needed, needed(spec));
        if let Err(error) = held.open_wanted() {
            (held.wanted, held.needed) = (before, needed_before);
            held.close_unwanted();
            return Err(error);
        }
        held.send()?;
        Ok(())
    }

    /// A port below 1024 that `spec` names and that is not open yet.
    pub fn privileged(&self, spec: &PoolSpec) -> Option<TransportPort> {
        let held = self.lock();
        named(spec).into_keys().find(|port| port.address.port() < 1024 && !held.wanted.contains_key(port))
    }

    /// Closes those that `spec` does not name.
    ///
    /// # Errors
    /// The gateway cannot be told, and goes on listening there.
    pub fn settle(&self, spec: &PoolSpec) -> io::Result<()> {
        let mut held = self.lock();
        (held.wanted, held.needed) = (named(spec), needed(spec));
        if held.close_unwanted() { held.send() } else { Ok(()) }
    }

    /// What a gateway that is started now inherits. All sockets wait there for it.
    pub fn for_start(&self) -> io::Result<OwnedFd> {
        let held = self.lock();
        let handover = held.handover.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        weal_rpc::discard_handed_over(handover);
        held.send()?;
        inheritable(handover)
    }

    /// Takes over what a living gateway has: `number` is what it inherited. False when that cannot be had.
    pub fn take_over(&self, gateway: ProcessId, number: Option<i32>) -> bool {
        let mut held = self.lock();
        held.handover = number.and_then(|number| taken_over(gateway, number)).map(UnixDatagram::from);
        let numbers = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid()));
        let numbers = numbers.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let sockets =
            numbers.filter_map(|number| taken_over(gateway, number)).filter_map(|socket| Some((port_of(&socket)?, socket)));
        let wanted = held.listeners();
        let found = |(port, socket)| Some((wanted.iter().find(|listener| listener.port() == port)?.clone(), socket));
        let open: Vec<_> = sockets.filter_map(found).collect();
        held.open.extend(open);
        held.handover.is_some()
    }

    /// Has a gateway that was taken over listen at what the config names now.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn send(&self) -> io::Result<()> {
        self.lock().send()
    }

    /// Those of the config, and where they lead.
    pub fn named(&self) -> BTreeMap<TransportPort, AppName> {
        self.lock().wanted.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn open_wanted(&mut self) -> anyhow::Result<()> {
        for (port, app) in &self.wanted {
            if let Entry::Vacant(place) = self.open.entry(Listener::Port(*port)) {
                place.insert(open(*port, app)?);
            }
        }
        let before = self.inner.clone();
        for app in &self.needed {
            let kept = self.inner.get(app).map(|address| Listener::Inner { app: app.clone(), address: *address });
            if kept.as_ref().is_some_and(|kept| self.open.contains_key(kept)) {
                continue;
            }
            let (address, socket) = open_inner(self.inner.get(app).copied())?;
            self.inner.insert(app.clone(), address);
            self.open.insert(Listener::Inner { app: app.clone(), address }, socket);
        }
        if self.inner != before || (!self.inner.is_empty() && !self.file.exists()) {
            let text = serde_json::to_vec_pretty(&self.inner)?;
            std::fs::write(&self.file, text).with_context(|| format!("cannot write {}", self.file.display()))?;
        }
        Ok(())
    }

    /// All that the config asks for, as far as it has an address.
    fn listeners(&self) -> BTreeSet<Listener> {
        let inner = self
            .needed
            .iter()
            .filter_map(|app| self.inner.get(app).map(|address| Listener::Inner { app: app.clone(), address: *address }));
        self.wanted.keys().map(|port| Listener::Port(*port)).chain(inner).collect()
    }

    /// True when there were any.
    fn close_unwanted(&mut self) -> bool {
        let (before, wanted) = (self.open.len(), self.listeners());
        self.open.retain(|listener, _| wanted.contains(listener));
        self.open.len() < before
    }

    fn send(&self) -> io::Result<()> {
        let listeners = Listeners(self.open.keys().cloned().collect());
        let sockets: Vec<BorrowedFd<'_>> = self.open.values().map(AsFd::as_fd).collect();
        weal_rpc::hand_over(&self.path, &listeners, &sockets)
    }
}

fn needed(spec: &PoolSpec) -> BTreeSet<AppName> {
    spec.needed().into_iter().cloned().collect()
}

/// An inner address on loopback: the one that it had, or another when that is somebody else's now.
fn open_inner(kept: Option<SocketAddr>) -> anyhow::Result<(SocketAddr, OwnedFd)> {
    let bound = kept.map_or_else(|| Err(anyhow!("it has none yet")), |kept| bind_tcp(kept, "needs", "an application"));
    let listener = match bound {
        Ok(listener) => listener,
        Err(_) => bind_tcp((Ipv4Addr::LOCALHOST, 0).into(), "needs", "an application")?,
    };
    Ok((listener.local_addr()?, listener.into()))
}

/// The ports that routes of `spec` name.
fn named(spec: &PoolSpec) -> BTreeMap<TransportPort, AppName> {
    let ports = spec.apps.values().flat_map(|app| app.routes.iter().filter_map(|route| Some((route.port?, app.name.clone()))));
    ports.collect()
}

fn open(port: TransportPort, app: &AppName) -> anyhow::Result<OwnedFd> {
    let (key, table) = (port.transport.as_str(), format!("a route of [app.{app}]"));
    match port.transport {
        Transport::Tcp => Ok(bind_tcp(port.address, key, &table)?.into()),
        Transport::Udp => {
            let socket = UdpSocket::bind(port.address).map_err(|error| explain(port.address, key, &table, &error))?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        }
    }
}

/// The port that a socket listens at; `None` when it does not.
fn port_of(socket: &OwnedFd) -> Option<TransportPort> {
    let address = SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()?;
    let transport = match rustix::net::sockopt::socket_type(socket).ok()? {
        rustix::net::SocketType::STREAM if rustix::net::sockopt::socket_acceptconn(socket).ok()? => Transport::Tcp,
        rustix::net::SocketType::DGRAM => Transport::Udp,
        _ => return None,
    };
    Some(TransportPort { transport, address })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use weal_model::{AppSpec, RouteSpec};

    use super::*;

    fn spec(ports: &[TransportPort]) -> PoolSpec {
        let mut spec = PoolSpec::example();
        let routes = ports.iter().map(|port| RouteSpec { port: Some(*port), ..RouteSpec::any("gold".into()) }).collect();
        spec.apps.insert("db".into(), AppSpec { routes, ..AppSpec::example("db") });
        spec
    }

    fn free(transport: Transport) -> TransportPort {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        TransportPort { transport, address }
    }

    async fn received(socket: &tokio::net::UnixDatagram) -> Vec<TransportPort> {
        let (Listeners(listeners), sockets) = weal_rpc::receive_handed_over(socket).await.unwrap();
        assert_eq!(
            listeners.iter().map(|listener| Some(listener.port())).collect::<Vec<_>>(),
            sockets.iter().map(port_of).collect::<Vec<_>>()
        );
        listeners.iter().map(Listener::port).collect()
    }

    #[tokio::test]
    async fn a_new_config_opens_its_ports_before_it_closes_those_of_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir { root: folder.path().to_owned() };
        std::fs::create_dir(folder.path().join("run")).unwrap();
        let (old, new) = (free(Transport::Tcp), free(Transport::Udp));
        let ports = Ports::new(&state, &spec(&[old]));
        ports.bind().unwrap();
        let inherited = tokio::net::UnixDatagram::from_std(UnixDatagram::from(ports.for_start().unwrap())).unwrap();
        assert_eq!(received(&inherited).await, [old]);
        ports.widen(&spec(&[new])).unwrap();
        assert_eq!(received(&inherited).await, [old, new]);
        ports.settle(&spec(&[new])).unwrap();
        assert_eq!(received(&inherited).await, [new]);
        let held = TcpListener::bind(old.address).unwrap();
        let error = ports.widen(&spec(&[new, old])).unwrap_err().to_string();
        assert!(error.contains("is in use") && error.contains("a route of [app.db]"), "{error}");
        drop(held);
    }
}
