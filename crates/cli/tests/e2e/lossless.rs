//! Clients of every kind while their pool gets one config, one certificate and one program after the other. `cargo xtask lossless` runs this with
//! many requests.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::Request;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::load::read_answer;
use crate::patience::Patience;
use crate::pool::{PATIENCE, Pool, echo_app, free_ports, text};
use crate::upgrade::{install_next, installed};

/// How many requests and messages there are in all, at least, where this variable does not say so.
const REQUESTS: &str = "WEAL_REQUESTS";
const FEW: u64 = 1000;

/// Of the requests and messages, so many parts are answered between two changes at least, so that a slow machine makes no more than so many.
const PARTS: u64 = 20;
/// And so many of each kind.
const OF_EACH: u64 = 20;

/// How often a connection is looked at on which no answer came.
const LOOK: Duration = Duration::from_millis(200);

/// Clients of each kind.
const CLIENTS: usize = 2;
/// Requests or messages over one connection, before it is closed and the next one opened.
const OVER_ONE: u64 = 50;
/// How long messages begin over one WebSocket. A gateway that was replaced passes one on for 15 s more: what is under way by then has to be there.
const WEBSOCKET: Duration = Duration::from_secs(1);
/// Requests that are under way at once over one connection of HTTP/2.
const AT_ONCE: u64 = 10;

const HOST: &str = "echo.localhost";

/// What a client speaks over TLS.
#[derive(Debug, Clone, Copy)]
enum Kind {
    H1,
    H2,
    WebSocket,
}

const KINDS: [Kind; 3] = [Kind::H1, Kind::H2, Kind::WebSocket];

/// An authority that the clients trust.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
    /// Where the pool reads its certificate and the key.
    files: [PathBuf; 2],
}

impl Authority {
    fn new(files: [PathBuf; 2]) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let mut roots = RootCertStore::empty();
        roots.add(params.self_signed(&key).unwrap().der().clone()).unwrap();
        Self { issuer: Issuer::new(params, key), roots: Arc::new(roots), files }
    }

    /// Puts another certificate in the place of the one that is there.
    fn certify(&self) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![HOST.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        for (file, content) in self.files.iter().zip([certificate.pem(), key.serialize_pem()]) {
            std::fs::write(file, content).unwrap();
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
    }

    /// Sessions are not resumed: they would go on with the certificate that they began with.
    fn client(&self, protocol: &[u8]) -> TlsConnector {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(Arc::clone(&self.roots)).with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = Resumption::disabled();
        TlsConnector::from(Arc::new(config))
    }
}

/// Clients that go on until they are told to stop.
struct Clients {
    runtime: Runtime,
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
}

struct Shared {
    https: u16,
    over_h1: TlsConnector,
    over_h2: TlsConnector,
    stop: AtomicBool,
    /// By kind.
    answered: [AtomicU64; KINDS.len()],
    /// What was lost, in words.
    lost: Mutex<Vec<String>>,
    /// Every certificate that was shown.
    certificates: Mutex<BTreeSet<Vec<u8>>>,
}

impl Clients {
    fn start(authority: &Authority, https: u16) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shared = Arc::new(Shared {
            https,
            over_h1: authority.client(b"http/1.1"),
            over_h2: authority.client(b"h2"),
            stop: AtomicBool::new(false),
            answered: Default::default(),
            lost: Mutex::default(),
            certificates: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for kind in KINDS.into_iter().cycle().take(KINDS.len() * CLIENTS) {
            tasks.spawn_on(client(Arc::clone(&shared), kind), runtime.handle());
        }
        Self { runtime, tasks, shared }
    }

    /// Answers of each kind so far.
    fn answered(&self) -> [u64; KINDS.len()] {
        self.shared.answered.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn certificates(&self) -> usize {
        self.shared.certificates.lock().unwrap().len()
    }

    /// Waits until [`OF_EACH`] more were answered of each kind, and `all` in all. Whatever the machine does beside that: each answer has time of its own.
    ///
    /// # Panics
    /// When one kind gets no more answers, and when something was lost.
    fn wait_for(&self, pool: &Pool, all: u64) {
        let goals = self.answered().map(|answered| answered + OF_EACH);
        let mut last = self.answered().map(|answered| (answered, Patience::new(*PATIENCE)));
        loop {
            let answered = self.answered();
            let are_all_there = answered.iter().sum::<u64>() >= all;
            if are_all_there && answered.iter().zip(&goals).all(|(answered, goal)| answered >= goal) {
                return;
            }
            for (answered, last) in answered.into_iter().zip(&mut last) {
                if answered > last.0 {
                    *last = (answered, Patience::new(*PATIENCE));
                }
            }
            let is_stuck = last.iter_mut().any(|(_, patience)| patience.is_over());
            let lost = self.shared.lost.lock().unwrap().clone();
            assert!(!is_stuck && lost.is_empty(), "{answered:?} of {goals:?} and {all}, lost {lost:?}\n{}", pool.printed());
            std::thread::sleep(LOOK);
        }
    }

    /// Lets each client finish what it is at, and says what was lost.
    fn finish(mut self) -> Vec<String> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.runtime.block_on(async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.unwrap();
            }
        });
        std::mem::take(&mut *self.shared.lost.lock().unwrap())
    }
}

async fn client(shared: Arc<Shared>, kind: Kind) {
    while !shared.is_over() {
        let answers = Answers { shared: &shared, kind, count: AtomicU64::new(0) };
        let connection = async {
            match kind {
                Kind::H1 => over_h1(&answers).await,
                Kind::H2 => over_h2(&answers).await,
                Kind::WebSocket => over_websocket(&answers).await,
            }
        };
        if let Err(error) = patiently(connection, &answers.count).await {
            shared.lost.lock().unwrap().push(format!("{kind:?}: {error}"));
        }
    }
}

/// What came of a connection; an error when none of the answers that `count` counts comes any more.
async fn patiently(connection: impl Future<Output = io::Result<()>>, count: &AtomicU64) -> io::Result<()> {
    let mut connection = pin!(connection);
    let (mut last, mut patience) = (0, Patience::new(*PATIENCE));
    loop {
        if let Ok(ended) = tokio::time::timeout(LOOK, connection.as_mut()).await {
            return ended;
        }
        let answered = count.load(Ordering::Relaxed);
        if answered > last {
            (last, patience) = (answered, Patience::new(*PATIENCE));
        } else if patience.is_over() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer came after {answered}")));
        }
    }
}

/// The answers over one connection.
struct Answers<'a> {
    shared: &'a Shared,
    kind: Kind,
    count: AtomicU64,
}

impl Answers<'_> {
    fn note(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.shared.answered[self.kind as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    async fn connect(&self, over: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(("127.0.0.1", self.https)).await?;
        stream.set_nodelay(true)?;
        let stream = over.connect(ServerName::try_from(HOST).unwrap(), stream).await?;
        let shown = stream.get_ref().1.peer_certificates().expect("a server shows one")[0].to_vec();
        self.certificates.lock().unwrap().insert(shown);
        Ok(stream)
    }
}

/// One connection, until the gateway says that it closes.
async fn over_h1(answers: &Answers<'_>) -> io::Result<()> {
    let shared = answers.shared;
    let mut stream = BufReader::new(shared.connect(&shared.over_h1).await?);
    for _ in 0..OVER_ONE {
        stream.write_all(format!("GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n").as_bytes()).await?;
        stream.flush().await?;
        let (status, closes) = read_answer(&mut stream).await?;
        expect(200, status)?;
        answers.note();
        if closes || shared.is_over() {
            break;
        }
    }
    Ok(())
}

/// One connection, until the gateway says that it takes no more requests over it. What was sent before has its answer.
async fn over_h2(answers: &Answers<'_>) -> io::Result<()> {
    let shared = answers.shared;
    let stream = shared.connect(&shared.over_h2).await?;
    let (sender, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
    let driving = tokio::spawn(connection);
    let mut sent = 0;
    while sent < OVER_ONE && !shared.is_over() {
        let mut under_way = Vec::new();
        while (under_way.len() as u64) < AT_ONCE
            && let Ok(mut ready) = sender.clone().ready().await
            && let Ok((response, _)) = ready.send_request(Request::get(format!("https://{HOST}/")).body(()).unwrap(), true)
        {
            under_way.push(response);
        }
        if under_way.is_empty() {
            break;
        }
        for response in under_way {
            let response = response.await.map_err(io::Error::other)?;
            expect(200, response.status().as_u16())?;
            let mut body = response.into_body();
            while let Some(part) = body.data().await {
                let length = part.map_err(io::Error::other)?.len();
                body.flow_control().release_capacity(length).map_err(io::Error::other)?;
            }
            answers.note();
            sent += 1;
        }
    }
    driving.abort();
    Ok(())
}

/// One connection, whose messages a former gateway passes on for as long as it finishes what it has.
async fn over_websocket(answers: &Answers<'_>) -> io::Result<()> {
    let shared = answers.shared;
    let mut stream = BufReader::new(shared.connect(&shared.over_h1).await?);
    let asked = format!("GET / HTTP/1.1\r\nhost: {HOST}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    stream.write_all(asked.as_bytes()).await?;
    stream.flush().await?;
    expect(101, read_answer(&mut stream).await?.0)?;
    let begun = Instant::now();
    for number in 0..OVER_ONE {
        stream.write_all(&number.to_be_bytes()).await?;
        stream.flush().await?;
        let echo = stream.read_u64().await?;
        if echo != number {
            return Err(io::Error::other(format!("message {number} came back as {echo}")));
        }
        answers.note();
        if shared.is_over() || begun.elapsed() > WEBSOCKET {
            break;
        }
    }
    Ok(())
}

fn expect(wanted: u16, status: u16) -> io::Result<()> {
    if status == wanted { Ok(()) } else { Err(io::Error::other(format!("status {status}"))) }
}

/// The pool's config, unlike the one of any other round.
fn write_config(pool: &Pool, https: u16, round: u64) {
    let (listen, api) = (pool.listen, pool.api);
    pool.write_text(&format!(
        "[pool]\nlisten = [\"http://127.0.0.1:{listen}\", \"https://127.0.0.1:{https}\"]\napi = \"127.0.0.1:{api}\"\nflow-cycle = \"1s\"\n\
         traceparent = {}\nclient-rate = {}\n\n[tls.test]\ncertificate = \"test.pem\"\nkey = \"test.key\"\n\n{}",
        round % 2 == 1,
        1000 + round,
        echo_app("echo", "")
    ));
}

#[test]
fn nothing_of_any_client_is_lost_while_configs_certificates_and_programs_change() {
    let wanted: u64 = std::env::var(REQUESTS).ok().and_then(|count| count.parse().ok()).unwrap_or(FEW);
    let folder = tempfile::tempdir().unwrap();
    let program = installed(folder.path());
    let [https] = free_ports();
    let mut pool = Pool::new("").run_by(program.clone());
    let authority = Authority::new(["test.pem", "test.key"].map(|name| pool.config().with_file_name(name)));
    authority.certify();
    write_config(&pool, https, 0);
    pool.up();
    let clients = Clients::start(&authority, https);
    let (mut rounds, mut gateways) = (0, BTreeSet::from([pool.pid("gateway")]));
    clients.wait_for(&pool, 0);
    while rounds == 0 || clients.answered().into_iter().sum::<u64>() < wanted {
        rounds += 1;
        write_config(&pool, https, rounds);
        let applied = pool.run(&["apply"]);
        assert!(applied.status.success(), "{}", text(&applied.stderr));
        let shown = clients.certificates();
        authority.certify();
        pool.eventually("the next certificate is shown", || (clients.certificates() > shown).then_some(()));
        install_next(&program);
        let upgraded = pool.run(&["upgrade", "--timeout", "900"]);
        assert!(upgraded.status.success(), "{}\n{}", text(&upgraded.stderr), pool.printed());
        gateways.insert(pool.pid("gateway"));
        clients.wait_for(&pool, rounds * wanted / PARTS);
        // Only so many gateways share seats at once.
        pool.eventually("the former gateway ends", || (pool.role_pids("gateway").len() == 1).then_some(()));
    }
    let (answered, certificates) = (clients.answered(), clients.certificates());
    let lost = clients.finish();
    println!(
        "{} requests over HTTP/1.1, {} over HTTP/2, {} messages over WebSocket; {rounds} configs, {} certificates, {} programs: {} lost",
        answered[0],
        answered[1],
        answered[2],
        certificates - 1,
        gateways.len() - 1,
        lost.len()
    );
    assert!(lost.is_empty(), "{lost:?}\n{}", pool.printed());
    assert_eq!((certificates as u64, gateways.len() as u64), (rounds + 1, rounds + 1));
}
