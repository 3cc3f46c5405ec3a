//! Certificates and their private keys on disk: reading and judging files, and making self-signed ones.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use weal_host::files::replace;
use weal_model::{CertificateSource, PoolSpec};
use weal_protocol::tls::Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::pem::parse_x509_pem;

const DAY_S: i64 = 24 * 3600;
/// A certificate that ends sooner is warned of: long enough to get another one, and half of what authorities leave for it.
pub const WARN_DAYS: i64 = 14;
/// How long a self-signed certificate is good. Some browsers take none beyond 398 days.
const SELF_SIGNED_DAYS: i64 = 90;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("[tls.{name}]: cannot read {}: {source}. Name a file that exists and that the user of `weal up` may read", .path.display())]
    Unreadable {
        /// Its table in the config.
        name: String,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others may read the private key.
    #[error("[tls.{name}]: everybody may read the private key {} (mode {mode:o}): chmod o-rwx {0}", .path.display())]
    Open {
        /// Its table in the config.
        name: String,
        /// The key file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file holds something else.
    #[error("[tls.{name}]: {} holds no {what} in PEM (`-----BEGIN ...`): {why}", .path.display())]
    Content {
        /// Its table in the config.
        name: String,
        /// Which file.
        path: PathBuf,
        /// What should be in it.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The certificate is for no host.
    #[error("[tls.{name}]: the certificate in {} names no host (no DNS name as subjectAltName), so no client would take it: ask for another one", .path.display())]
    Nameless {
        /// Its table in the config.
        name: String,
        /// The certificate file.
        path: PathBuf,
    },
    /// None can be made.
    #[error("[tls.{name}]: cannot make a self-signed certificate: {source}")]
    Unmade {
        /// Its table in the config.
        name: String,
        /// Why.
        source: rcgen::Error,
    },
}

/// A certificate as it was read.
#[derive(Debug)]
pub struct ReadCertificate {
    /// With its key.
    pub certificate: Certificate,
    /// While it is good.
    pub validity: Validity,
}

/// The time in which a certificate is good, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Its first.
    pub first_s: i64,
    /// Its last.
    pub last_s: i64,
}

impl Validity {
    /// Whole days until it ends; negative afterwards.
    pub fn days_left(&self, now_s: i64) -> i64 {
        (self.last_s - now_s).div_euclid(DAY_S)
    }
}

impl ReadCertificate {
    /// Whole days until it ends; negative afterwards.
    pub fn days_left(&self) -> i64 {
        self.validity.days_left(now_s())
    }

    /// What somebody should know about its end; `None` while that is far.
    pub fn warning(&self) -> Option<String> {
        let (name, days) = (&self.certificate.name, self.days_left());
        match days {
            WARN_DAYS.. => None,
            0.. => Some(format!("[tls.{name}]: the certificate ends in {days} days: renew it; changed files are taken at once")),
            _ => Some(format!("[tls.{name}]: the certificate ended {} days ago: clients refuse it, renew it", -days)),
        }
    }
}

/// The two files of a certificate. Those that weal makes or asks for are below `folder`.
pub fn files(name: &str, source: &CertificateSource, folder: &Path) -> [PathBuf; 2] {
    match source {
        CertificateSource::Files { certificate, key } => [certificate.into(), key.into()],
        CertificateSource::SelfSigned { .. } | CertificateSource::Acme(_) => own_files(name, folder),
    }
}

/// The two files of a certificate that weal makes or asks for, below `folder`.
pub fn own_files(name: &str, folder: &Path) -> [PathBuf; 2] {
    ["pem", "key"].map(|ending| folder.join(format!("{name}.{ending}")))
}

/// Reads all certificates of `spec`, those that weal made or was given from `folder`. One that an authority is still to give is left out.
///
/// # Errors
/// The first that cannot be used.
pub fn read_all(spec: &PoolSpec, folder: &Path) -> Result<Vec<ReadCertificate>, CertificateError> {
    let all = spec.tls.iter().flat_map(|tls| &tls.certificates);
    let is_there = |(name, source): &(&String, &CertificateSource)| {
        !matches!(source, CertificateSource::Acme(_)) || files(name, source, folder)[0].exists()
    };
    all.filter(is_there).map(|(name, source)| read(name, files(name, source, folder))).collect()
}

/// The mode of a private key that everybody may read or change; `None` where it is closed to others.
///
/// # Errors
/// There is none, or it cannot be looked at.
pub fn open_mode(key: &Path) -> std::io::Result<Option<u32>> {
    let mode = fs::metadata(key)?.mode() & 0o777;
    Ok((mode & 0o007 != 0).then_some(mode))
}

/// Reads one certificate and its key.
///
/// # Errors
/// It cannot be used.
pub fn read(name: &str, [chain_file, key_file]: [PathBuf; 2]) -> Result<ReadCertificate, CertificateError> {
    let unreadable = |path: &PathBuf| {
        let (name, path) = (name.to_owned(), path.clone());
        move |source| CertificateError::Unreadable { name, path, source }
    };
    let chain = fs::read_to_string(&chain_file).map_err(unreadable(&chain_file))?;
    if let Some(mode) = open_mode(&key_file).map_err(unreadable(&key_file))? {
        return Err(CertificateError::Open { name: name.to_owned(), path: key_file, mode });
    }
    let key = fs::read_to_string(&key_file).map_err(unreadable(&key_file))?;
    if !key.contains("PRIVATE KEY-----") {
        let (what, why) = ("private key", "there is none in it".to_owned());
        return Err(CertificateError::Content { name: name.to_owned(), path: key_file, what, why });
    }
    let content =
        |why: String| CertificateError::Content { name: name.to_owned(), path: chain_file.clone(), what: "certificate", why };
    let (_, pem) = parse_x509_pem(chain.as_bytes()).map_err(|error| content(error.to_string()))?;
    let (_, parsed) = parse_x509_certificate(&pem.contents).map_err(|error| content(error.to_string()))?;
    let names = parsed.subject_alternative_name().map_err(|error| content(error.to_string()))?;
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let hosts: Vec<String> = names
        .filter_map(|name| if let GeneralName::DNSName(host) = name { Some(host.to_ascii_lowercase()) } else { None })
        .collect();
    if hosts.is_empty() {
        return Err(CertificateError::Nameless { name: name.to_owned(), path: chain_file });
    }
    let validity = parsed.validity();
    let validity = Validity { first_s: validity.not_before.timestamp(), last_s: validity.not_after.timestamp() };
    Ok(ReadCertificate { certificate: Certificate { name: name.to_owned(), hosts, chain, key }, validity })
}

/// Makes the self-signed certificates of `spec` that `folder` lacks, or whose hosts or dates do no longer fit.
///
/// # Errors
/// One cannot be made or written.
pub fn make_missing(spec: &PoolSpec, folder: &Path) -> Result<(), CertificateError> {
    for (name, source) in spec.tls.iter().flat_map(|tls| &tls.certificates) {
        let CertificateSource::SelfSigned { hosts } = source else { continue };
        let files = files(name, source, folder);
        let fits = |read: ReadCertificate| read.certificate.hosts == *hosts && read.days_left() >= WARN_DAYS;
        if !read(name, files.clone()).is_ok_and(fits) {
            make(name, hosts, &files)?;
        }
    }
    Ok(())
}

fn make(name: &str, hosts: &[String], [chain_file, key_file]: &[PathBuf; 2]) -> Result<(), CertificateError> {
    let unmade = |source| CertificateError::Unmade { name: name.to_owned(), source };
    let mut params = rcgen::CertificateParams::new(hosts).map_err(unmade)?;
    params.distinguished_name.push(rcgen::DnType::CommonName, format!("weal, self-signed ({name})"));
    params.subject_alt_names.push(rcgen::SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()));
    let now = SystemTime::now();
    let day = std::time::Duration::from_secs(DAY_S.unsigned_abs());
    params.not_before = (now - day).into();
    params.not_after = (now + day * u32::try_from(SELF_SIGNED_DAYS).unwrap_or_default()).into();
    let key = rcgen::KeyPair::generate().map_err(unmade)?;
    let certificate = params.self_signed(&key).map_err(unmade)?;
    let written =
        replace(key_file, key.serialize_pem().as_bytes()).and_then(|()| replace(chain_file, certificate.pem().as_bytes()));
    written.map_err(|source| CertificateError::Unreadable { name: name.to_owned(), path: chain_file.clone(), source })
}

/// The time now, in seconds since 1970.
pub fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
