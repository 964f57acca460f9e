//! Who may speak to whom: on this machine a token is enough; between hosts every byte is inside TLS 1.3, with
//! certificates of an authority that exists for one job only. A foreign authority, the public ones included,
//! is never trusted.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};
use starlings_core::{Fault, JobId, Result};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The name in every certificate. Addresses change and say nothing: identity is the authority and the token.
pub(crate) const SERVER_NAME: &str = "starlings";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MEMBER_LIFE: Duration = Duration::from_secs(7 * DAY.as_secs());
const AUTHORITY_LIFE: Duration = Duration::from_secs(365 * DAY.as_secs());

/// Hosts' clocks differ: a certificate is valid from a little before it was made.
const CLOCK_SLACK: Duration = Duration::from_secs(60 * 60);

/// How links are protected.
#[derive(Clone, Debug)]
pub enum Security {
    /// Not at all: for this machine only.
    Plain,
    /// By TLS 1.3.
    Tls(TlsIdentity),
}

/// One member's credentials. Secret: it goes only over links that are inside TLS.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsIdentity {
    /// The authority's certificate, DER.
    authority: Vec<u8>,
    /// Own certificates, leaf first, DER. Empty for someone who only holds a ticket yet.
    chain: Vec<Vec<u8>>,
    /// Own private key, PKCS #8 DER.
    key: Vec<u8>,
}

/// An authority for one job. It lives with the coordinator and is never written down.
pub struct JobAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// Refuses to listen beyond this machine without TLS and a token.
///
/// # Errors
/// The caller must say `--tls`, or give a token.
pub fn check_bind(address: SocketAddr, security: &Security, has_token: bool) -> Result<()> {
    let tls = matches!(security, Security::Tls(_));
    if address.ip().to_canonical().is_loopback() || (tls && has_token) {
        return Ok(());
    }
    let refused = format!("{address} can be reached from other hosts");
    Err(match tls {
        false => Fault::caller(format!("{refused}, and the connection is not protected"))
            .hint("add --tls, or listen on 127.0.0.1"),
        true => Fault::caller(format!("{refused}, and no token is set"))
            .hint("add --ticket, or listen on 127.0.0.1"),
    })
}

impl JobAuthority {
    /// An authority for this job.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(job: JobId) -> Result<JobAuthority> {
        JobAuthority::at(job, wall_clock())
    }

    /// The authority of a job again, from its key (DER): what it signs is believed by whoever believed the first one.
    ///
    /// # Errors
    /// The key is none.
    pub fn again(job: JobId, key: &[u8]) -> Result<JobAuthority> {
        let key = KeyPair::try_from(key).map_err(cannot_certify)?;
        JobAuthority::signed(job, key, wall_clock())
    }

    /// The authority's key (DER). Secret.
    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        self.issuer.key().serialize_der()
    }

    /// As [`JobAuthority::new`], for a given date.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn at(job: JobId, now: SystemTime) -> Result<JobAuthority> {
        JobAuthority::signed(job, KeyPair::generate().map_err(cannot_certify)?, now)
    }

    fn signed(job: JobId, key: KeyPair, now: SystemTime) -> Result<JobAuthority> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("starlings job {:016x}", job.0));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        limit_life(&mut params, now, AUTHORITY_LIFE);
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(cannot_certify)?;
        Ok(JobAuthority { issuer })
    }

    /// The authority's certificate (DER), for tickets.
    #[must_use]
    pub fn certificate(&self) -> Vec<u8> {
        self.issuer.der().to_vec()
    }

    /// Credentials for one member, valid for 7 days. `name` and `addresses` are for people who read
    /// certificates; they are not checked.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn issue(&self, name: &str, addresses: &[IpAddr]) -> Result<TlsIdentity> {
        self.issue_at(name, addresses, wall_clock())
    }

    /// As [`JobAuthority::issue`], for a given date.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn issue_at(
        &self,
        name: &str,
        addresses: &[IpAddr],
        now: SystemTime,
    ) -> Result<TlsIdentity> {
        let names = vec![SERVER_NAME.to_string()];
        let mut params = CertificateParams::new(names).map_err(cannot_certify)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.extend(addresses.iter().map(|&ip| SanType::IpAddress(ip)));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        limit_life(&mut params, now, MEMBER_LIFE);
        let key = KeyPair::generate().map_err(cannot_certify)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(cannot_certify)?;
        Ok(TlsIdentity {
            authority: self.certificate(),
            chain: vec![certificate.der().to_vec()],
            key: key.serialize_der(),
        })
    }
}

impl TlsIdentity {
    /// What someone who only holds a ticket has: the authority's certificate. It can call a coordinator,
    /// which may then issue credentials; it cannot listen, nor call a worker.
    #[must_use]
    pub fn joining(authority: Vec<u8>) -> TlsIdentity {
        TlsIdentity { authority, chain: Vec::new(), key: Vec::new() }
    }

    /// TLS as the side that calls.
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(cannot_certify)?
            .with_root_certificates(self.roots()?);
        let mut config = match self.chain.is_empty() {
            true => builder.with_no_client_auth(),
            false => {
                builder.with_client_auth_cert(self.chain(), self.key()).map_err(cannot_certify)?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// TLS as the side that listens. A certificate that is shown must be of this job; whether one must be
    /// shown depends on the purpose, which is said later.
    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>> {
        if self.chain.is_empty() {
            return Err(Fault::caller("to listen with TLS needs a certificate of the job")
                .hint("ask the coordinator to issue one after joining"));
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()?), provider())
                .allow_unauthenticated()
                .build()
                .map_err(cannot_certify)?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(cannot_certify)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain(), self.key())
            .map_err(cannot_certify)?;
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.authority.clone())).map_err(cannot_certify)?;
        Ok(roots)
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.chain.iter().cloned().map(CertificateDer::from).collect()
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsIdentity(…)")
    }
}

impl fmt::Debug for JobAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobAuthority(…)")
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn limit_life(params: &mut CertificateParams, now: SystemTime, life: Duration) {
    let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_1970.saturating_sub(CLOCK_SLACK);
    params.not_after = epoch + since_1970 + life;
}

#[expect(
    clippy::disallowed_methods,
    reason = "certificates are checked against the wall clock, so they must be made by it"
)]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

fn cannot_certify(error: impl fmt::Display) -> Fault {
    Fault::machine("cannot set up TLS").caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> TlsIdentity {
        JobAuthority::new(JobId(1)).unwrap().issue("test", &[]).unwrap()
    }

    #[test]
    fn listening_beyond_this_machine_needs_tls_and_a_token() {
        let tls = Security::Tls(identity());
        for local in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            check_bind(local.parse().unwrap(), &Security::Plain, true).unwrap();
        }
        for open in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:0.0.0.0]:1", "[fe80::1]:1"] {
            let open = open.parse().unwrap();
            let fault = check_bind(open, &Security::Plain, true).unwrap_err();
            assert!(fault.advice().unwrap().contains("--tls"), "{fault}");
            let fault = check_bind(open, &tls, false).unwrap_err();
            assert!(fault.message().contains("no token"), "{fault}");
            check_bind(open, &tls, true).unwrap();
        }
    }

    #[test]
    fn secrets_are_not_printed_by_accident() {
        assert_eq!(format!("{:?}", Security::Tls(identity())), "Tls(TlsIdentity(…))");
    }

    #[test]
    fn a_ticket_alone_does_not_allow_to_listen() {
        let joining = TlsIdentity::joining(JobAuthority::new(JobId(1)).unwrap().certificate());
        joining.client().unwrap();
        assert!(joining.server().is_err());
    }
}
