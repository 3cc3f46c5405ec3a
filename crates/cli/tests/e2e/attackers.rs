//! Clients and applications that mean harm, each beside a client that does not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::load::{Load, get};
use crate::pool::{PATIENCE, Pool, echo_app, text};
use crate::site::{say, site};

/// Clients that send a body of 100 kB at ten bytes a second, until this is dropped or they are cut off.
struct SlowSenders {
    stop: Arc<AtomicBool>,
    clients: Vec<TcpStream>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl SlowSenders {
    fn start(port: u16, count: usize) -> Self {
        let mut clients = Vec::new();
        for _ in 0..count {
            let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            client.set_read_timeout(Some(*PATIENCE)).unwrap();
            client.write_all(b"POST / HTTP/1.1\r\nhost: echo.localhost\r\ncontent-length: 100000\r\n\r\n").unwrap();
            clients.push(client);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, mut writers) =
            (Arc::clone(&stop), clients.iter().map(|client| client.try_clone().unwrap()).collect::<Vec<_>>());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // Who was cut off takes no more.
                writers.iter_mut().for_each(|writer| drop(writer.write_all(b"x")));
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Self { stop, clients, thread: Some(thread) }
    }

    /// What they are told in the end.
    fn answers(&mut self) -> Vec<String> {
        let read = |client: &mut TcpStream| {
            let mut answer = Vec::new();
            // It may be reset after the answer: more of the body was on its way.
            let _ = client.read_to_end(&mut answer);
            text(&answer)
        };
        self.clients.iter_mut().map(read).collect()
    }
}

impl Drop for SlowSenders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn flow(pool: &Pool, key: &str) -> Option<f64> {
    pool.status()?["flows"][0][key].as_f64()
}

#[test]
fn forty_slow_senders_neither_take_all_seats_nor_make_their_application_ask_for_cpu() {
    // They keep to this rate, so that they stay.
    let mut pool = site("client-min-rate = 1", None, &echo_app("echo", ""));
    pool.up();
    let load = Load::start(pool.listen, "echo.localhost", "/", 2);
    load.wait_for(500);
    pool.eventually("what a request costs is known", || (pool.status()?["apps"][0]["cpu_demand"].as_f64()? > 0.0).then_some(()));
    let slow = SlowSenders::start(pool.listen, 40);
    pool.eventually("some hold seats", || (flow(&pool, "at_clients")? >= 1.0).then_some(()));
    load.wait_for(500);
    let tally = load.finish();
    assert!(tally.lost.is_empty(), "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);
    pool.eventually("nothing is asked for them", || {
        let status = pool.status()?;
        let held = status["flows"][0]["at_clients"].as_f64()?;
        (held >= 1.0 && status["apps"][0]["cpu_demand"].as_f64()? < 0.01).then_some(())
    });
    drop(slow);
}

#[test]
fn slow_senders_are_cut_off_and_told_why() {
    let mut pool = site("", None, &echo_app("echo", ""));
    pool.up();
    let mut slow = SlowSenders::start(pool.listen, 40);
    let load = Load::start(pool.listen, "echo.localhost", "/", 2);
    let answers = slow.answers();
    load.wait_for(10);
    assert!(load.finish().lost.is_empty());
    let told = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 408 ")).count();
    // A reset may overtake an answer.
    assert!(told >= 30, "{told} of 40: {answers:?}");
    let why = text(&pool.run(&["why", "echo", "--rejected"]).stdout);
    assert!(why.contains("came at less than 240 bytes per second"), "{why}");
}

#[test]
fn an_instance_that_never_comes_to_the_point_and_half_heads_cost_others_nothing() {
    let mut pool = Pool::new(&echo_app("echo", ""));
    pool.up();
    let halves: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut half = TcpStream::connect(("127.0.0.1", pool.listen)).unwrap();
            half.write_all(b"GET / HTTP/1.1\r\nhost: echo.localh").unwrap();
            half
        })
        .collect();
    let endless = say(pool.listen, "GET /interim HTTP/1.0\r\nhost: echo.localhost\r\n\r\n");
    assert!(endless.starts_with("HTTP/1.0 502 ") || endless.starts_with("HTTP/1.1 502 "), "{endless}");
    for _ in 0..20 {
        let mut leaving = TcpStream::connect(("127.0.0.1", pool.listen)).unwrap();
        leaving.write_all(b"GET /interim HTTP/1.1\r\nhost: echo.localhost\r\n\r\n").unwrap();
    }
    pool.eventually("nothing is left of them", || (flow(&pool, "in_service_mean")? == 0.0).then_some(()));
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
    drop(halves);
}

#[test]
fn a_web_socket_on_which_nothing_moves_is_closed() {
    let app = echo_app("echo", "").replace("echo.localhost\" }", "echo.localhost\", tunnel-idle-timeout = \"1s\" }");
    let mut pool = Pool::new(&app);
    pool.up();
    let open = || {
        let mut socket = TcpStream::connect(("127.0.0.1", pool.listen)).unwrap();
        socket.set_read_timeout(Some(*PATIENCE)).unwrap();
        socket.write_all(b"GET / HTTP/1.1\r\nhost: echo.localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", text(&head));
        socket
    };
    let (mut idle, mut used) = (open(), open());
    let closed = std::thread::spawn(move || idle.read_to_end(&mut Vec::new()));
    while !closed.is_finished() {
        used.write_all(b"ping").unwrap();
        used.read_exact(&mut [0; 4]).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(closed.join().unwrap().unwrap(), 0);
    used.write_all(b"ping").unwrap();
    used.read_exact(&mut [0; 4]).unwrap();
}

/// The port of the only instance.
fn port_of_instance(pool: &Pool) -> Option<u16> {
    let address = pool.status()?["apps"][0]["instances"][0]["address"].as_str()?.to_owned();
    address.rsplit(':').next()?.parse().ok()
}

#[test]
fn nobody_takes_the_port_of_an_instance_that_was_given_its_socket() {
    let app = echo_app("echo", "pass-socket = true").replace("\"$PORT\"]", "\"$PORT\", \"--given\"]");
    let mut pool = Pool::new(&app);
    pool.up();
    let port = pool.eventually("its address", || port_of_instance(&pool));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let stranger = std::thread::spawn(move || {
        let mut taken = 0;
        while !stopped.load(Ordering::Relaxed) {
            taken += u32::from(std::net::TcpListener::bind(("127.0.0.1", port)).is_ok());
            std::thread::sleep(Duration::from_micros(200));
        }
        taken
    });
    for round in 0..3 {
        if round == 1 {
            // The next agent has the socket from the shim.
            pool.kill_role("node");
            pool.wait_ready();
        }
        let old = pool.instance_of("echo").unwrap();
        crate::pool::kill(i32::try_from(old).unwrap());
        // A request that it takes while it dies ends with it.
        pool.eventually("its end", || (!crate::pool::is_alive(old)).then_some(()));
        let (status, answer) = get(pool.listen, "echo.localhost", "/").unwrap();
        assert_eq!(status, 200, "round {round}: {answer}");
        pool.eventually("another process", || (pool.instance_of("echo")? != old).then_some(()));
        assert_eq!(port_of_instance(&pool), Some(port), "at the same port");
    }
    stop.store(true, Ordering::Relaxed);
    assert_eq!(stranger.join().unwrap(), 0, "nobody else could listen there");
}

/// Somebody who listens at a port as soon as it is free, and keeps what comes.
struct Thief {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Option<Vec<u8>>>,
}

impl Thief {
    fn wait_for(port: u16) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let listener = loop {
                match std::net::TcpListener::bind(("127.0.0.1", port)) {
                    Ok(listener) => break listener,
                    Err(_) if stopped.load(Ordering::Relaxed) => return None,
                    Err(_) => std::hint::spin_loop(),
                }
            };
            listener.set_nonblocking(true).unwrap();
            let mut heard = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                if let Ok((mut client, _)) = listener.accept() {
                    client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                    let mut buffer = [0; 4096];
                    let length = client.read(&mut buffer).unwrap_or(0);
                    heard.extend_from_slice(&buffer[..length]);
                }
            }
            Some(heard)
        });
        Self { stop, thread }
    }

    /// One that listens at the port of an instance, which nobody looks after.
    fn in_place_of(instance: i64, port: u16, pool: &Pool) -> Self {
        let thief = Self::wait_for(port);
        crate::pool::kill(i32::try_from(instance).unwrap());
        let listens = || weal_host::listening::listener_at(([127, 0, 0, 1], port).into()).unwrap();
        pool.eventually("the thief listens", || listens().filter(|socket| socket.uid == 0));
        thief
    }

    /// What came; `None` when weal was faster.
    fn finish(self) -> Option<Vec<u8>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn who_listens_in_the_place_of_an_instance_that_ended_gets_no_request() {
    if !rustix::process::geteuid().is_root() {
        return weal_testing::skip("without root, applications have the same user as everybody else here");
    }
    let mut pool = Pool::new(&echo_app("echo", ""));
    pool.up();
    let port = pool.eventually("its address", || port_of_instance(&pool));
    let loads = [Load::start(pool.listen, "echo.localhost", "/", 4), Load::start_anew(pool.listen, "echo.localhost", "/", 4)];
    loads.iter().for_each(|load| load.wait_for(50));
    let thief = Thief::wait_for(port);
    let old = pool.instance_of("echo").unwrap();
    crate::pool::kill(i32::try_from(old).unwrap());
    pool.eventually("another process", || (pool.instance_of("echo")? != old).then_some(()));
    loads.iter().for_each(|load| load.wait_for(50));
    let heard = thief.finish();
    drop(loads.map(Load::finish));
    match heard {
        None => eprintln!("weal had the port again before anybody else"),
        Some(heard) => assert!(heard.is_empty(), "{}", text(&heard)),
    }
}

#[test]
fn who_takes_the_port_before_the_first_request_gets_none_either() {
    if !rustix::process::geteuid().is_root() {
        return weal_testing::skip("without root, applications have the same user as everybody else here");
    }
    let mut pool = Pool::new(&echo_app("echo", ""));
    pool.up();
    let port = pool.eventually("its address", || port_of_instance(&pool));
    let instance = pool.eventually("it", || pool.instance_of("echo"));
    // Nobody looks at the instance, so that the thief is always faster.
    pool.pause("node");
    let thief = Thief::in_place_of(instance, port, &pool);
    // It waits for the instance, and may even get its answer of the next one.
    let answer = get(pool.listen, "echo.localhost", "/");
    let heard = thief.finish().expect("it listened");
    assert!(heard.is_empty(), "{answer:?}: {}", text(&heard));
}

#[test]
fn who_listens_where_an_instance_was_before_the_pool_was_started_again_gets_no_request() {
    if !rustix::process::geteuid().is_root() {
        return weal_testing::skip("without root, applications have the same user as everybody else here");
    }
    let mut pool = Pool::new(&echo_app("echo", ""));
    pool.up();
    let port = pool.eventually("its address", || port_of_instance(&pool));
    let instance = pool.eventually("it", || pool.instance_of("echo"));
    pool.eventually("the gateway keeps the address", || {
        let kept = std::fs::read_to_string(pool.state().join("gateway/gateway.json")).ok()?;
        kept.contains(&format!("127.0.0.1:{port}")).then_some(())
    });
    pool.kill_started();
    for role in ["node", "controller", "gateway"] {
        pool.role_pids(role).into_iter().for_each(crate::pool::kill);
    }
    let thief = Thief::in_place_of(instance, port, &pool);
    // They ask from the first moment at which somebody accepts.
    let (stop, listen) = (Arc::<AtomicBool>::default(), pool.listen);
    let clients: Vec<_> = (0..4).map(|_| Arc::clone(&stop)).collect();
    let clients = clients.into_iter().map(|stopped| {
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let _ = get(listen, "echo.localhost", "/");
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    pool.up();
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_ne!(port_of_instance(&pool), Some(port), "it has another port");
    let heard = thief.finish().expect("it listened");
    assert!(heard.is_empty(), "{}", text(&heard));
}
