//! Ports and inner tiers: what is not HTTP, and applications that call each other.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use crate::load::get;
use crate::pool::{Pool, echo_app, free_ports, text};

/// The echo application, reached at a port of its own.
fn with_port(name: &str, port: u16, more: &str) -> String {
    let app = echo_app(name, &format!("{more}\n"));
    app.replace(&format!("{{ host = \"{name}.localhost\" }}"), &format!("{{ tcp = {port} }}"))
}

/// What the application behind `port` says. It speaks HTTP, of which the gateway knows nothing here.
fn ask(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")?;
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer)?;
    Ok(text(&answer[..count]))
}

fn is_in_state(pool: &Pool, app: &str, state: &str) -> Option<()> {
    let status = pool.status()?;
    status["apps"].as_array()?.iter().any(|one| one["name"] == app && one["state"] == state).then_some(())
}

#[test]
fn a_tcp_server_sleeps_until_the_first_connection_and_a_dead_gateway_refuses_nobody() {
    let [port] = free_ports();
    let sleepy = with_port("mail", port, "sleep-after = \"1s\"").replace("min = 1, max = 1", "min = 0, max = 1");
    let mut pool = Pool::new(&sleepy);
    pool.start();
    pool.eventually("it sleeps", || is_in_state(&pool, "mail", "asleep"));
    let answer = ask(port).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("mail-"), "{answer}");
    pool.eventually("it is awake", || is_in_state(&pool, "mail", "ready"));

    // A connection that is open keeps it awake.
    let open = TcpStream::connect(("127.0.0.1", port)).unwrap();
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(is_in_state(&pool, "mail", "ready"), Some(()), "somebody is connected");
    drop(open);

    pool.kill_role("gateway");
    assert!(ask(port).unwrap().contains("mail-"), "the supervisor holds the port");
    pool.kill_supervisor();
    pool.start();
    pool.eventually("the gateway was taken over", || pool.printed().contains("took over the gateway").then_some(()));
    pool.kill_role("gateway");
    assert!(ask(port).unwrap().contains("mail-"), "the next supervisor holds it too");
}

#[test]
fn a_new_config_opens_its_ports_and_one_in_use_leaves_the_old_config_in_force() {
    let [old, new] = free_ports();
    let mut pool = Pool::new(&with_port("mail", old, ""));
    pool.up();
    assert!(ask(old).unwrap().contains("mail-"));
    let held = TcpListener::bind(("127.0.0.1", new)).unwrap();
    pool.write(&with_port("mail", new, ""));
    pool.eventually("the config is refused", || pool.printed().contains(&format!("port {new} is in use")).then_some(()));
    assert!(ask(old).unwrap().contains("mail-"));
    drop(held);
    pool.signal_supervisor(rustix::process::Signal::HUP);
    pool.eventually("the new port answers", || ask(new).ok().filter(|answer| answer.contains("mail-")));
    pool.eventually("the old one is closed", || TcpStream::connect(("127.0.0.1", old)).is_err().then_some(()));
}

/// A server that sends datagrams back.
const UDP_ECHO: &str = "import os, socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.1', int(os.environ['PORT'])))\n\
    while True: d, a = s.recvfrom(65535); s.sendto(b'echo ' + d, a)";

#[test]
fn a_udp_server_sleeps_until_the_first_datagram() {
    let python = Command::new("/usr/bin/python3").arg("--version").output();
    if python.is_err() {
        weal_testing::skip("/usr/bin/python3 is missing");
        return;
    }
    let [port] = free_ports();
    let game = format!(
        "[app.game]\nrun = [\"/usr/bin/python3\", \"-c\", {UDP_ECHO:?}]\nhealth = {{ command = [\"/bin/true\"] }}\nmemory = \"64MiB\"\n\
         instances = {{ min = 0, max = 1 }}\nroutes = [{{ udp = {port} }}]\nsleep-after = \"1s\"\n"
    );
    let mut pool = Pool::new(&game);
    pool.start();
    pool.eventually("it sleeps", || is_in_state(&pool, "game", "asleep"));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    client.send_to(b"hello", ("127.0.0.1", port)).unwrap();
    let mut reply = [0; 64];
    let (count, from) = client.recv_from(&mut reply).unwrap();
    assert_eq!((&reply[..count], from.port()), (&b"echo hello"[..], port), "the reply comes from the port");
}

/// Three tiers; the one in the middle has two instances.
fn tiers() -> String {
    let inner = |name: &str| echo_app(name, "").replace(&format!("routes = [{{ host = \"{name}.localhost\" }}]\n"), "");
    let front = echo_app("front", "needs = [\"api\"]").replace("front.localhost\" }", "front.localhost\", class = \"gold\" }");
    let api = inner("api").replace("min = 1, max = 1", "min = 2, max = 2") + "needs = [\"store\"]\n";
    format!("[class.gold]\ngoal = \"p95 < 500ms\"\n\n{front}\n{api}\n{}", inner("store"))
}

/// The words of each line that an instance wrote: who, and whether it was told a class.
fn through(pool: &Pool) -> Option<Vec<String>> {
    let (status, body) = get(pool.listen, "front.localhost", "/call/api/call/store/x").ok()?;
    let body = body.split_once("\r\n\r\n").map_or(body.as_str(), |(_, body)| body);
    (status == 200).then(|| body.lines().map(str::to_owned).collect())
}

#[test]
fn the_middle_of_three_tiers_has_two_instances_and_both_are_called_at_an_address_that_stays() {
    let mut pool = Pool::new(&tiers());
    pool.up();
    let mut middle = BTreeSet::new();
    for _ in 0..40 {
        let lines = through(&pool).unwrap();
        let [front, api, store] = &lines[..] else { panic!("{lines:?}") };
        assert!(front.starts_with("front-") && api.starts_with("api-") && store.starts_with("store-"), "{lines:?}");
        assert!(front.ends_with("marked") && api.ends_with("marked"), "the class goes along: {lines:?}");
        middle.insert(api.split(' ').next().unwrap().to_owned());
    }
    assert_eq!(middle.len(), 2, "{middle:?}");
    let addresses = std::fs::read_to_string(pool.state().join("inner.json")).unwrap();

    // An instance that moves costs its callers nothing: they are not replaced.
    let front = through(&pool).unwrap()[0].clone();
    for pid in pids(&pool, "api") {
        crate::pool::kill(i32::try_from(pid).unwrap());
    }
    pool.eventually("calls are answered again", || {
        through(&pool).filter(|lines| lines.len() == 3 && lines[1].starts_with("api-"))
    });
    assert_eq!(through(&pool).unwrap()[0], front, "the same process");

    // Nor does a gateway that is replaced.
    pool.kill_role("gateway");
    pool.eventually("calls are answered again", || through(&pool).filter(|lines| lines.len() == 3));
    assert_eq!(through(&pool).unwrap()[0], front);
    assert_eq!(std::fs::read_to_string(pool.state().join("inner.json")).unwrap(), addresses);
    assert!(!pool.status().unwrap()["flows"].as_array().unwrap().iter().any(|flow| flow["app"] != "front"), "calls are no flows");
}

fn pids(pool: &Pool, app: &str) -> Vec<i64> {
    let status = pool.status().unwrap();
    let apps = status["apps"].as_array().unwrap().clone();
    let instances = apps.iter().filter(|one| one["name"] == app).flat_map(|one| one["instances"].as_array().unwrap().clone());
    instances.filter_map(|instance| instance["pid"].as_i64()).collect()
}
