//! What the libraries for TLS and HTTP/2 hold for one connection that is idle: what `cargo xtask bench idle` prints beside its measurements.
//!
//! Both ends of one connection are in this process, and an allocator that counts. When an answer has come, the client's end is dropped: what is
//! allocated then and was not before is the server's. Prints a line for each library, with bytes on the heap and within the library's own type.

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

type Failure = Box<dyn Error + Send + Sync>;

const HOST: &str = "bench.test";

/// Bytes that are allocated now.
static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: the system's allocator does all that is asked.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: what holds for this call holds for that one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<(), Failure> {
    // Once before, for what is made only once.
    tls()?;
    let heap = tls()?;
    println!("tls {} {}", heap, size_of::<ServerConnection>());
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(h2())?;
    let heap = runtime.block_on(h2())?;
    println!("h2 {} {}", heap, size_of::<h2::server::Connection<tokio::io::DuplexStream, Bytes>>());
    Ok(())
}

/// Bytes on the heap of a server's end of TLS 1.3, after a request and an answer.
fn tls() -> Result<usize, Failure> {
    let (client, server) = configs()?;
    // All connections of a gateway share one: it is there before, and shall not go with the client's end.
    let shared = (Arc::clone(&client), Arc::clone(&server));
    let before = LIVE.load(Ordering::Relaxed);
    let mut client = ClientConnection::new(client, ServerName::try_from(HOST)?)?;
    let mut server = ServerConnection::new(server)?;
    client.writer().write_all(b"GET / HTTP/1.1\r\nhost: bench.test\r\n\r\n")?;
    server.writer().write_all(&[b'x'; 200])?;
    let mut buffer = [0; 4096];
    while client.wants_write() || server.wants_write() {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        client.write_tls(&mut to_server)?;
        server.write_tls(&mut to_client)?;
        feed(&to_server, |rest| server.read_tls(rest))?;
        server.process_new_packets()?;
        feed(&to_client, |rest| client.read_tls(rest))?;
        client.process_new_packets()?;
        let _ = server.reader().read(&mut buffer);
        let _ = client.reader().read(&mut buffer);
    }
    drop(client);
    let held = LIVE.load(Ordering::Relaxed) - before;
    drop(shared);
    Ok(held)
}

fn feed(mut bytes: &[u8], mut read: impl FnMut(&mut &[u8]) -> std::io::Result<usize>) -> Result<(), Failure> {
    while !bytes.is_empty() {
        read(&mut bytes)?;
    }
    Ok(())
}

fn configs() -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), Failure> {
    let certified = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
    let certificate = certified.cert.der().clone();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der())?;
    let provider = || Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    let mut server = builder.with_no_client_auth().with_single_cert(vec![certificate.clone()], key)?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    let mut client = builder.with_root_certificates(roots).with_no_client_auth();
    client.resumption = Resumption::disabled();
    Ok((Arc::new(client), Arc::new(server)))
}

/// Bytes on the heap of a server's end of HTTP/2, after a request and an answer. Those of the pipe between the two are among them: less than
/// a kilobyte.
async fn h2() -> Result<usize, Failure> {
    let before = LIVE.load(Ordering::Relaxed);
    let (near, far) = tokio::io::duplex(64 << 10);
    let (client, server) = tokio::join!(h2::client::handshake(near), h2::server::handshake(far));
    let ((mut sender, client), mut server) = (client?, server?);
    let (response, _) = sender.send_request(Request::get(format!("http://{HOST}/")).body(())?, true)?;
    let serve = async {
        while let Some(Ok((_, mut respond))) = server.accept().await {
            let answer = respond.send_response(Response::new(()), false);
            let _ = answer.and_then(|mut body| body.send_data(Bytes::from_static(&[b'x'; 200]), true));
        }
    };
    let ask = async {
        let mut body = response.await?.into_body();
        while let Some(part) = body.data().await {
            body.flow_control().release_capacity(part?.len())?;
        }
        Ok::<_, Failure>(())
    };
    tokio::select! { () = serve => {}, _ = client => {}, asked = ask => asked? }
    drop(sender);
    let held = LIVE.load(Ordering::Relaxed) - before;
    drop(server);
    Ok(held)
}
