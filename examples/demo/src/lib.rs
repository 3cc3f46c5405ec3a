//! What the demo's applications share: a small HTTP server and requests that cost exactly what they say.
//!
//! Nothing here knows weal. An application reads its port from the command line and answers `/healthz`; that is all that
//! weal asks of one.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// A request as an application sees it.
#[derive(Debug)]
pub struct Call {
    /// How it came in.
    pub method: Method,
    /// The path.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
}

/// What an application answers.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The text.
    pub text: String,
}

impl Reply {
    /// 200 with this text.
    pub fn ok(text: impl Into<String>) -> Self {
        Self { status: StatusCode::OK, text: text.into() }
    }

    /// 404.
    pub fn not_found() -> Self {
        Self { status: StatusCode::NOT_FOUND, text: "there is no such page\n".into() }
    }

    /// 500 with this reason.
    pub fn failed(reason: impl std::fmt::Display) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, text: format!("{reason}\n") }
    }
}

impl Call {
    /// A number from the query, or `default`; at most 60,000, so that no request holds a thread for over a minute.
    pub fn number(&self, name: &str, default: u64) -> u64 {
        let value = self.query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
        value.and_then(|(_, value)| value.parse().ok()).unwrap_or(default).min(60_000)
    }
}

/// Serves `handler` on 127.0.0.1 at `--port N` until SIGTERM, then finishes what it has. `GET /healthz` answers `ok`, and
/// `GET /work?cpu_ms=N&sleep_ms=N&bytes=N` costs what it says, for tests.
///
/// The handler may block: each call runs on a thread of its own.
pub fn serve<H>(handler: H) -> anyhow::Result<()>
where
    H: Fn(&Call) -> Reply + Send + Sync + 'static,
{
    let port = port_argument()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).max_blocking_threads(256).enable_all().build()?;
    runtime.block_on(accept(port, Arc::new(handler)))
}

fn port_argument() -> anyhow::Result<u16> {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|word| word == "--port");
    let port = at.and_then(|at| arguments.get(at + 1)).ok_or_else(|| anyhow::anyhow!("usage: {} --port PORT", arguments[0]))?;
    Ok(port.parse()?)
}

async fn accept<H>(port: u16, handler: Arc<H>) -> anyhow::Result<()>
where
    H: Fn(&Call) -> Reply + Send + Sync + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let graceful = hyper_util::server::graceful::GracefulShutdown::new();
    let mut terminated = signal(SignalKind::terminate())?;
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            _ = terminated.recv() => break,
        };
        stream.set_nodelay(true)?;
        let handler = Arc::clone(&handler);
        let service = hyper::service::service_fn(move |request| answer(Arc::clone(&handler), request));
        let connection =
            hyper::server::conn::http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A client that goes away in the middle is its own business.
            let _ = connection.await;
        });
    }
    graceful.shutdown().await;
    Ok(())
}

async fn answer<H>(handler: Arc<H>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible>
where
    H: Fn(&Call) -> Reply + Send + Sync + 'static,
{
    let call = Call {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
    };
    let reply = match call.path.as_str() {
        "/healthz" => Reply::ok("ok\n"),
        _ => {
            let handle = move || if call.path == "/work" { work(&call) } else { handler(&call) };
            tokio::task::spawn_blocking(handle).await.unwrap_or_else(|_| Reply::failed("the handler panicked"))
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(reply.text)));
    *response.status_mut() = reply.status;
    Ok(response)
}

fn work(call: &Call) -> Reply {
    burn(Duration::from_millis(call.number("cpu_ms", 0)));
    std::thread::sleep(Duration::from_millis(call.number("sleep_ms", 0)));
    Reply::ok("x".repeat(usize::try_from(call.number("bytes", 2)).unwrap_or(2)))
}

/// Uses exactly `cpu` of CPU time on this thread, however busy the machine is, and returns a checksum of the work.
pub fn burn(cpu: Duration) -> u64 {
    let used = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0))
    };
    let end = used() + cpu;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while used() < end {
        // Some 5 us between two looks at the clock.
        for _ in 0..4096 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
    }
    std::hint::black_box(state)
}
