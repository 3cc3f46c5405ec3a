//! One certificate, from the account to the chain (RFC 8555 section 7).

use std::path::{Path, PathBuf};
use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Identifier, KeyAuthorization, NewAccount, NewOrder,
    OrderStatus, RetryPolicy,
};
use weal_model::{AcmeChallenge, AcmeSpec};
use weal_protocol::tls::{Certificate, Challenges};

use super::error::AcmeError;
use super::https::Https;
use super::proofs::Proofs;
use crate::digest::sha256;

/// How often and how long an authority is asked whether it has made up its mind.
const POLL: RetryPolicy = RetryPolicy::new().initial_delay(Duration::from_millis(250)).timeout(Duration::from_secs(90));

/// What an authority gave, in PEM.
pub struct Given {
    /// The certificate, and those that lead from it to a root.
    pub chain: String,
    /// Its private key, which nobody else has seen.
    pub key: String,
}

/// What is asked for, and how it is proven.
pub struct Order<'o> {
    /// What the config says.
    pub spec: &'o AcmeSpec,
    /// Where accounts are kept.
    pub folder: &'o Path,
    /// The way to the gateway, which shows proofs.
    pub proofs: &'o Proofs,
}

impl Order<'_> {
    /// Asks for it.
    ///
    /// # Errors
    /// The authority does not give one.
    pub async fn run(&self) -> Result<Given, AcmeError> {
        let account = self.account().await?;
        let hosts: Vec<Identifier> = self.spec.hosts.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&hosts)).await?;
        self.prove(&mut order).await?;
        match order.poll_ready(&POLL).await {
            Ok(OrderStatus::Invalid) => return Err(self.why_invalid(&mut order, "it does not say why".to_owned()).await),
            Err(instant_acme::Error::Api(problem)) => return Err(self.why_invalid(&mut order, problem.to_string()).await),
            polled => drop(polled?),
        }
        let key = order.finalize().await?;
        let chain = order.poll_certificate(&POLL).await?;
        Ok(Given { chain, key })
    }

    /// The account at this authority, made at the first time.
    async fn account(&self) -> Result<Account, AcmeError> {
        let file = account_file(self.folder, self.spec);
        let builder = || Https::new(self.spec).map(|https| Account::builder_with_http(Box::new(https)));
        let known = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice::<AccountCredentials>(&text).ok());
        if let Some(credentials) = known {
            return Ok(builder()?.from_credentials(credentials).await?);
        }
        let contact = self.spec.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let account = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let (account, credentials) = builder()?.create(&account, self.spec.directory.clone(), None).await?;
        let text = serde_json::to_vec(&credentials).map_err(instant_acme::Error::from)?;
        weal_host::files::replace(&file, &text).map_err(|source| AcmeError::Kept { path: file, source })?;
        Ok(account)
    }

    /// Shows the proof for each host that the authority has not seen lately, and says so.
    async fn prove(&self, order: &mut instant_acme::Order) -> Result<(), AcmeError> {
        let mut shown = Challenges::default();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let host = authorization.identifier().to_string();
            let kind = match self.spec.challenge {
                AcmeChallenge::Http01 => ChallengeType::Http01,
                AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
            };
            let Some(mut challenge) = authorization.challenge(kind) else {
                return Err(AcmeError::NotOffered { challenge: self.spec.challenge.as_str(), host });
            };
            let proof = challenge.key_authorization();
            match self.spec.challenge {
                AcmeChallenge::Http01 => drop(shown.tokens.insert(challenge.token.clone(), proof.as_str().to_owned())),
                AcmeChallenge::TlsAlpn01 => shown.certificates.push(handshake_proof(&host, &proof)?),
            }
            self.proofs.show(shown.clone()).await?;
            challenge.set_ready().await?;
        }
        Ok(())
    }

    /// Which host was not proven, and what the authority says of it; `otherwise` where it says nothing of single hosts.
    async fn why_invalid(&self, order: &mut instant_acme::Order, otherwise: String) -> AcmeError {
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            let host = authorization.identifier().to_string();
            let Ok(state) = authorization.refresh().await else { continue };
            let failed = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
            if let Some(problem) = failed {
                return AcmeError::NotProven { host, why: problem.to_string() };
            }
        }
        AcmeError::NotProven { host: self.spec.hosts.join(", "), why: otherwise }
    }
}

/// The account at one authority: others may be used beside it, or later.
fn account_file(folder: &Path, spec: &AcmeSpec) -> PathBuf {
    folder.join(format!("acme-{}.json", &sha256(&spec.directory)[..16]))
}

/// The certificate that is shown to an authority alone (RFC 8737 section 3).
fn handshake_proof(host: &str, proof: &KeyAuthorization) -> Result<Certificate, AcmeError> {
    let mut params = rcgen::CertificateParams::new([host.to_owned()])?;
    params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(proof.digest().as_ref())];
    let key = rcgen::KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let (name, hosts) = (format!("proof of {host}"), vec![host.to_owned()]);
    Ok(Certificate { name, hosts, chain: certificate.pem(), key: key.serialize_pem() })
}
