//! TLS with clients: which certificate they get, which versions, what is resumed, and what a broken or slow handshake costs others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion};
use weal_gateway::Limits;
use weal_model::TlsVersion;
use weal_protocol::tls::{CERTIFY, Certificate, Challenges, TicketKey, TlsConfig};

use crate::bed::{Answer, Bed, PATIENCE, behind_local_proxies, cluster, folder, instance, limits, named};

/// An authority that clients of these tests trust.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        Self { issuer: Issuer::new(params, key), roots: Arc::new(roots) }
    }

    pub fn certify(&self, hosts: &[&str]) -> Certificate {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(hosts.clone()).unwrap().signed_by(&key, &self.issuer).unwrap();
        Certificate { name: hosts[0].clone(), hosts, chain: certificate.pem(), key: key.serialize_pem() }
    }

    pub fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> TlsConnector {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        TlsConnector::from(Arc::new(builder.with_root_certificates(Arc::clone(&self.roots)).with_no_client_auth()))
    }

    /// A client that offers `protocols`, best first.
    pub fn offering(&self, protocols: &[&[u8]]) -> TlsConnector {
        let mut config = ClientConfig::clone(self.client(&[&TLS13]).config());
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }
}

pub fn config(certificates: Vec<Certificate>) -> TlsConfig {
    TlsConfig {
        certificates,
        ticket_keys: vec![TicketKey([7; 32])],
        min_version: TlsVersion::V12,
        redirect_port: None,
        challenges: Challenges::default(),
    }
}

pub async fn secure_bed(address: SocketAddr, limits: Limits, config: &TlsConfig) -> Bed {
    let bed = Bed::start_for(folder(), limits, true).await;
    bed.rpc.call(CERTIFY, config).await.unwrap();
    bed.configure(vec![cluster(&[address])]).await.unwrap();
    bed
}

pub async fn connect(bed: &Bed, client: &TlsConnector, host: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(bed.tls_address).await?;
    let connecting = client.connect(ServerName::try_from(host.to_owned()).unwrap(), stream);
    tokio::time::timeout(PATIENCE, connecting).await.expect("the handshake ends")
}

pub async fn get(stream: &mut TlsStream<TcpStream>, host: &str, connection: &str) -> Answer {
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: {connection}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    loop {
        let answer = Answer::parse(&all);
        let length = answer.header("content-length").and_then(|length| length.parse::<usize>().ok());
        if length.is_some_and(|length| answer.body.len() >= length) {
            return answer;
        }
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut all)).await.expect("an answer comes").unwrap();
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&all));
    }
}

/// The hosts that the certificate names which a client for `host` was shown.
async fn shown(bed: &Bed, client: &TlsConnector, host: &str) -> Vec<u8> {
    let stream = connect(bed, client, host).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn a_request_over_tls_is_answered_and_the_instance_is_told_so() {
    let told = instance(|request| async move {
        let say = |name: &str| request.headers().get(name).map_or("none", |value| value.to_str().unwrap()).to_owned();
        Response::new(Full::<Bytes>::from(format!("{} {}", say("x-forwarded-proto"), say("forwarded"))))
    })
    .await;
    let authority = Authority::new();
    let bed = secure_bed(told, limits(), &config(vec![authority.certify(&["shop.test"])])).await;
    for version in [&TLS12, &TLS13] {
        let mut stream = connect(&bed, &authority.client(&[version]), "shop.test").await.unwrap();
        let answer = get(&mut stream, "shop.test", "keep-alive").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "https for=127.0.0.1;proto=https;host=shop.test"));
        assert_eq!(get(&mut stream, "shop.test", "close").await.status, 200, "a second one on the connection");
    }
    assert!(bed.get("shop.test", "/").await.text().starts_with("http for=127.0.0.1;proto=http;"));
    let counted = bed.observe().await.tls;
    assert_eq!((counted.full, counted.resumed, counted.failed), (2, 0, 0));
}

#[tokio::test]
async fn the_host_that_a_client_names_chooses_the_certificate() {
    let authority = Authority::new();
    let (exact, wild) = (authority.certify(&["a.shop.test"]), authority.certify(&["*.shop.test"]));
    let bed = secure_bed(named("one").await, limits(), &config(vec![exact, wild])).await;
    let client = authority.client(&[&TLS13]);
    let (of_a, of_b) = (shown(&bed, &client, "a.shop.test").await, shown(&bed, &client, "b.shop.test").await);
    assert_ne!(of_a, of_b);
    assert_eq!(shown(&bed, &client, "A.SHOP.test").await, of_a);
    for wrong in ["other.test", "shop.test", "a.b.shop.test"] {
        assert!(connect(&bed, &client, wrong).await.is_err(), "{wrong}");
    }
    let nameless = connect(&bed, &client, "127.0.0.1").await.unwrap_err();
    assert!(nameless.to_string().contains("not valid for name"), "the first certificate is shown: {nameless}");
    bed.until("counts", |counters| counters.tls.failed == 4 && counters.tls.full == 3).await;
}

#[tokio::test]
async fn an_old_version_is_refused_when_the_config_says_so() {
    let authority = Authority::new();
    let modern = TlsConfig { min_version: TlsVersion::V13, ..config(vec![authority.certify(&["shop.test"])]) };
    let bed = secure_bed(named("one").await, limits(), &modern).await;
    assert!(connect(&bed, &authority.client(&[&TLS12]), "shop.test").await.is_err());
    assert!(connect(&bed, &authority.client(&[&TLS13]), "shop.test").await.is_ok());
}

/// A client that wants ChaCha20 first has no instructions for AES; the others take what is cheapest here.
#[tokio::test]
async fn the_gateway_chooses_the_cipher_unless_its_client_lacks_instructions_for_it() {
    use tokio_rustls::rustls::crypto::ring::cipher_suite::*;
    let authority = Authority::new();
    let bed = secure_bed(named("one").await, limits(), &config(vec![authority.certify(&["shop.test"])])).await;
    let [short, long, chacha] = [TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
    let [old_short, old_long, old_chacha] = [
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    for (offered, chosen) in [
        (vec![long, chacha, short], short),
        (vec![short, long], short),
        (vec![long, chacha], long),
        (vec![chacha, long, short], chacha),
        (vec![chacha], chacha),
        (vec![old_long, old_chacha, old_short], old_short),
        (vec![old_long, old_chacha], old_long),
        (vec![old_chacha, old_long, old_short], old_chacha),
    ] {
        let versions: &[&'static SupportedProtocolVersion] = if offered[0].tls13().is_some() { &[&TLS13] } else { &[&TLS12] };
        let mut provider = rustls::crypto::ring::default_provider();
        provider.cipher_suites = offered;
        let builder = ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(versions).unwrap();
        let client = builder.with_root_certificates(Arc::clone(&authority.roots)).with_no_client_auth();
        let offered: Vec<_> = client.crypto_provider().cipher_suites.iter().map(|suite| suite.suite()).collect();
        let stream = connect(&bed, &TlsConnector::from(Arc::new(client)), "shop.test").await.unwrap();
        let agreed = stream.get_ref().1.negotiated_cipher_suite().unwrap();
        assert_eq!(agreed.suite(), chosen.suite(), "{offered:?}");
    }
}

#[tokio::test]
async fn a_session_is_resumed_on_every_worker_and_by_the_next_process() {
    for version in [&TLS12, &TLS13] {
        let authority = Authority::new();
        let config = config(vec![authority.certify(&["shop.test"])]);
        let four = Limits { workers: 4, ..limits() };
        let (first, second) =
            (secure_bed(named("one").await, four, &config).await, secure_bed(named("two").await, limits(), &config).await);
        let client = authority.client(&[version]);
        // All stay open, so that each worker gets some of them.
        let mut open = Vec::new();
        for bed in [&first, &first, &first, &first, &first, &first, &first, &first, &second, &second] {
            let mut stream = connect(bed, &client, "shop.test").await.unwrap();
            // Tickets of 1.3 come after the handshake.
            assert_eq!(get(&mut stream, "shop.test", "keep-alive").await.status, 200);
            let is_resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
            assert_eq!(is_resumed, !open.is_empty(), "connection {} of {version:?}", open.len());
            open.push(stream);
        }
        let (counted, next) = (first.observe().await.tls, second.observe().await.tls);
        assert_eq!((counted.full, counted.resumed, next.full, next.resumed), (1, 7, 0, 2));
    }
}

#[tokio::test]
async fn certificates_change_under_load_without_losing_a_connection_or_a_request() {
    let authority = Arc::new(Authority::new());
    let bed = Arc::new(secure_bed(named("one").await, limits(), &config(vec![authority.certify(&["shop.test"])])).await);
    let before = shown(&bed, &authority.client(&[&TLS13]), "shop.test").await;
    let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let clients: Vec<_> = (0..8)
        .map(|index| {
            let (bed, authority) = (Arc::clone(&bed), Arc::clone(&authority));
            let (is_over, answered) = (Arc::clone(&is_over), Arc::clone(&answered));
            tokio::spawn(async move {
                let client = authority.client(&[&TLS13]);
                let mut stream = connect(&bed, &client, "shop.test").await.unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    if index % 2 == 0 {
                        stream = connect(&bed, &client, "shop.test").await.unwrap();
                    }
                    assert_eq!(get(&mut stream, "shop.test", "keep-alive").await.status, 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..20 {
        let seen = answered.load(Ordering::Relaxed);
        bed.rpc.call(CERTIFY, &config(vec![authority.certify(&["shop.test"])])).await.unwrap();
        bed.until("goes on", |_| answered.load(Ordering::Relaxed) >= seen + 8).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert_ne!(shown(&bed, &authority.client(&[&TLS13]), "shop.test").await, before);
    assert_eq!(bed.observe().await.tls.failed, 0);
}

#[tokio::test]
async fn what_cannot_be_used_leaves_the_former_certificate_in_force() {
    let authority = Authority::new();
    let good = authority.certify(&["shop.test"]);
    let bed = secure_bed(named("one").await, limits(), &config(vec![good.clone()])).await;
    let foreign = Certificate { key: authority.certify(&["shop.test"]).key, ..good.clone() };
    let cut = Certificate { key: good.key[..100].to_owned(), ..good.clone() };
    for (bad, said) in [(vec![foreign], "cannot be used together"), (vec![cut], "key file")] {
        let error = bed.rpc.call(CERTIFY, &config(bad)).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert!(!error.contains("BEGIN"), "no secret is said");
    }
    let keyless = TlsConfig { ticket_keys: Vec::new(), ..config(vec![good]) };
    assert!(bed.rpc.call(CERTIFY, &keyless).await.is_err());
    assert!(connect(&bed, &authority.client(&[&TLS13]), "shop.test").await.is_ok());
}

#[tokio::test]
async fn plain_http_at_the_port_for_https_is_told_what_to_do() {
    let authority = Authority::new();
    let bed = secure_bed(named("one").await, limits(), &config(vec![authority.certify(&["shop.test"])])).await;
    let mut stream = TcpStream::connect(bed.tls_address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n").await.unwrap();
    let mut all = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.unwrap().unwrap();
    let answer = Answer::parse(&all);
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("begin the address with https://"), "{}", answer.text());
}

#[tokio::test]
async fn garbage_and_slow_handshakes_end_in_time_and_cost_others_nothing() {
    let authority = Authority::new();
    let hasty = Limits { handshake: Duration::from_millis(600), handshakes: 2, ..limits() };
    let bed = secure_bed(named("one").await, hasty, &config(vec![authority.certify(&["shop.test"])])).await;
    let mut garbage = TcpStream::connect(bed.tls_address).await.unwrap();
    garbage.write_all(&[0xff; 300]).await.unwrap();
    let mut slow = Vec::new();
    // The first bytes of a record that never ends: the first two take both places.
    for start in [&[22, 3, 1, 1, 0, 1][..], &[22, 3, 1, 1, 0, 1], &[], &[]] {
        let mut stream = TcpStream::connect(bed.tls_address).await.unwrap();
        stream.write_all(start).await.unwrap();
        slow.push(stream);
    }
    let client = authority.client(&[&TLS13]);
    let good = connect(&bed, &client, "shop.test");
    let _ = tokio::time::timeout(Duration::from_secs(5), good).await.expect("it ends in time");
    for mut stream in slow.into_iter().chain([garbage]) {
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await.expect("it is closed");
    }
    bed.until("counts", |counters| counters.tls.failed >= 5 && counters.connections == 0).await;
    let mut stream = connect(&bed, &authority.client(&[&TLS13]), "shop.test").await.unwrap();
    assert_eq!(get(&mut stream, "shop.test", "close").await.status, 200);
}

#[tokio::test]
async fn requests_without_tls_are_sent_on_when_the_config_says_so() {
    let authority = Authority::new();
    let moved = TlsConfig { redirect_port: Some(8443), ..config(vec![authority.certify(&["shop.test"])]) };
    let bed = secure_bed(named("one").await, limits(), &moved).await;
    let answer = bed.get("shop.test:8080", "/a?b=c").await;
    assert_eq!((answer.status, answer.header("location")), (308, Some("https://shop.test:8443/a?b=c")));
    assert_eq!(bed.get("shop.test", "/.well-known/acme-challenge/x").await.status, 200, "authorities ask without TLS");
    let proxied = async || {
        let mut client = bed.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: shop.test\r\nx-forwarded-proto: https\r\nconnection: close\r\n\r\n").await;
        Answer::parse(&client.read_to_end().await).status
    };
    assert_eq!(proxied().await, 308, "a program of this machine says so");
    bed.configure_for(vec![cluster(&[named("one").await])], behind_local_proxies()).await.unwrap();
    assert_eq!(proxied().await, 200, "a proxy on this machine has received it over TLS");
    let default_port = TlsConfig { redirect_port: Some(443), ..moved };
    bed.rpc.call(CERTIFY, &default_port).await.unwrap();
    assert_eq!(bed.get("shop.test", "/").await.header("location"), Some("https://shop.test/"));

    let path = "/.well-known/acme-challenge/token";
    assert_eq!(bed.get("shop.test", path).await.text(), "one", "the instance's");
    let challenges = Challenges { tokens: [("token".to_owned(), "token.proof".to_owned())].into(), ..Challenges::default() };
    bed.rpc.call(CERTIFY, &TlsConfig { challenges, ..default_port }).await.unwrap();
    let answer = bed.get("shop.test", path).await;
    assert_eq!((answer.status, answer.text().trim_end()), (200, "token.proof"));
    assert_eq!(bed.get("shop.test", "/.well-known/acme-challenge/other").await.text(), "one");
}

#[tokio::test]
async fn a_client_that_offers_http2_in_the_handshake_speaks_it() {
    let told = instance(|request| async move {
        let say = |name: &str| request.headers().get(name).map_or("none", |value| value.to_str().unwrap()).to_owned();
        Response::new(Full::<Bytes>::from(format!("{} {}", say("x-forwarded-proto"), say("via"))))
    })
    .await;
    let authority = Authority::new();
    let bed = secure_bed(told, limits(), &config(vec![authority.certify(&["shop.test"])])).await;
    for (offered, expected) in [(&[&b"h2"[..], b"http/1.1"][..], "https 2.0 weal"), (&[b"http/1.1"], "https 1.1 weal")] {
        let connector = authority.offering(offered);
        let mut stream = connect(&bed, &connector, "shop.test").await.unwrap();
        let chosen = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(chosen.as_deref(), Some(offered[0]));
        if offered[0] == b"h2" {
            let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            assert_eq!(
                crate::h2::answer(crate::h2::send(&mut client, crate::h2::request("GET", "https://shop.test/"))).await.1,
                expected
            );
        } else {
            assert_eq!(get(&mut stream, "shop.test", "close").await.text(), expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_new_sessions_gets_in_one_after_the_other_and_what_handshakes_cost_is_counted() {
    const CROWD: u64 = 60;
    let authority = Arc::new(Authority::new());
    let bed = Arc::new(secure_bed(named("one").await, limits(), &config(vec![authority.certify(&["shop.test"])])).await);
    let clients: Vec<_> = (0..CROWD)
        .map(|number| {
            let (bed, authority) = (Arc::clone(&bed), Arc::clone(&authority));
            tokio::spawn(async move {
                let client = authority.client(&[if number % 2 == 0 { &TLS12 } else { &TLS13 }]);
                for _ in 0..2 {
                    let mut stream = connect(&bed, &client, "shop.test").await.unwrap();
                    assert_eq!(get(&mut stream, "shop.test", "close").await.status, 200);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let counted = bed.observe().await.tls;
    assert_eq!((counted.full, counted.resumed, counted.failed, counted.turned_away), (CROWD, CROWD, 0, 0));
    assert!(counted.full_cpu_s > 0.0 && counted.resumed_cpu_s > 0.0, "{counted:?}");
}

/// A ticket that nobody can open is worth nothing: its client waits as one that has none.
#[tokio::test]
async fn a_ticket_of_another_pool_is_no_ticket() {
    let authority = Authority::new();
    let mine = config(vec![authority.certify(&["shop.test"])]);
    let theirs = TlsConfig { ticket_keys: vec![TicketKey([8; 32])], ..mine.clone() };
    let (first, second) =
        (secure_bed(named("one").await, limits(), &mine).await, secure_bed(named("two").await, limits(), &theirs).await);
    for version in [&TLS12, &TLS13] {
        let client = authority.client(&[version]);
        for bed in [&first, &second] {
            let mut stream = connect(bed, &client, "shop.test").await.unwrap();
            assert_eq!(get(&mut stream, "shop.test", "close").await.status, 200);
        }
    }
    let (counted, other) = (first.observe().await.tls, second.observe().await.tls);
    assert_eq!((counted.full, counted.resumed, other.full, other.resumed), (2, 0, 2, 0));
}
