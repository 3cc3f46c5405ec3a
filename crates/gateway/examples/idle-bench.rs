//! Clients that open connections and then only sit there: what `cargo xtask bench idle` measures.
//!
//! `idle-bench CASE ADDRESS AUTHORITY COUNT`: COUNT connections by CASE to ADDRESS. It prints a line once all are open, and keeps them until
//! its input ends.
//!
//! | CASE | each connection |
//! | --- | --- |
//! | `h1-new` | has sent nothing |
//! | `h1` | has had an answer over HTTP/1.1 |
//! | `tls` | the same over TLS 1.3 |
//! | `h2` | has had an answer over HTTP/2, without TLS |

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use h2::client::SendRequest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

type Failure = Box<dyn Error + Send + Sync>;

const HOST: &str = "bench.test";

/// A connection that is kept.
#[expect(dead_code, reason = "kept only so that they stay open")]
enum Kept {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
    H2(SendRequest<bytes::Bytes>),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, address, authority, count] = arguments.as_slice() else {
        return Err("usage: idle-bench CASE ADDRESS AUTHORITY COUNT".into());
    };
    let connector = if case == "tls" { Some(connector(authority)?) } else { None };
    let mut kept = Vec::new();
    for _ in 0..count.parse::<usize>()? {
        kept.push(open(case, address, connector.as_ref()).await?);
    }
    println!("open");
    let _ = tokio::task::spawn_blocking(|| std::io::Read::read(&mut std::io::stdin(), &mut [0])).await;
    drop(kept);
    Ok(())
}

async fn open(case: &str, address: &str, connector: Option<&TlsConnector>) -> Result<Kept, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    match (case, connector) {
        ("h1-new", _) => Ok(Kept::Plain(stream)),
        ("h1", _) => {
            ask(&mut stream).await?;
            Ok(Kept::Plain(stream))
        }
        ("tls", Some(connector)) => {
            let mut stream = connector.connect(ServerName::try_from(HOST)?, stream).await?;
            ask(&mut stream).await?;
            Ok(Kept::Secure(Box::new(stream)))
        }
        ("h2", _) => {
            let (mut sender, connection) = h2::client::handshake(stream).await?;
            tokio::spawn(connection);
            let request = http::Request::get(format!("http://{HOST}/")).body(())?;
            let (response, _) = sender.send_request(request, true)?;
            let mut body = response.await?.into_body();
            while let Some(part) = body.data().await {
                body.flow_control().release_capacity(part?.len())?;
            }
            Ok(Kept::H2(sender))
        }
        _ => Err(format!("no such case: {case}").into()),
    }
}

/// One request and its answer, of which the length does not matter: it fits into one read.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<(), Failure> {
    stream.write_all(format!("GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n").as_bytes()).await?;
    let mut answer = vec![0; 16 << 10];
    let count = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut answer)).await??;
    if count == 0 { Err("closed".into()) } else { Ok(()) }
}

fn connector(authority: &str) -> Result<TlsConnector, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority)?)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = builder.with_protocol_versions(&[&TLS13])?.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
