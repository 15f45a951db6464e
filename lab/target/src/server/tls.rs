//! Encrypted connections to servers that run: `tls=on` checks who the server is, `tls=unverified` does not.
//!
//! Each protocol asks in its own way for what [`secured`] then does.

use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned};

use crate::spec::TargetSpec;

/// Whether a connection is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// It is not.
    #[default]
    Off,
    /// It is, and the server is who it says it is: by the authorities of the public, and by these.
    Verified(Option<PathBuf>),
    /// It is, with whoever answers.
    Unverified,
}

/// A stream that nobody on the way reads.
pub type Secured = StreamOwned<ClientConnection, TcpStream>;

impl Tls {
    /// `tls=` and `ca=` of a target.
    pub fn of(spec: &mut TargetSpec) -> Result<Tls, String> {
        let (tls, ca) = (spec.take("tls"), spec.take("ca").map(PathBuf::from));
        let tls = match tls.as_deref() {
            None | Some("off") => Tls::Off,
            Some("on") => Tls::Verified(ca.clone()),
            Some("unverified") => Tls::Unverified,
            Some(other) => return Err(format!("tls={other}: it is on, unverified or off")),
        };
        match (&tls, ca) {
            (Tls::Verified(_), Some(file)) => authorities(&file).map(|_| tls),
            (_, Some(_)) => Err("ca= is a file of certificates for tls=on".into()),
            _ => Ok(tls),
        }
    }
}

/// The certificates of a file.
fn authorities(file: &std::path::Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: rustls::pki_types::pem::Error| format!("ca={}: {error}", file.display());
    let all = CertificateDer::pem_file_iter(file).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if all.is_empty() { Err(format!("ca={} holds no certificate", file.display())) } else { Ok(all) }
}

/// Encrypts a stream; the server has been asked to.
pub fn secured(tls: &Tls, host: &str, mut stream: TcpStream) -> io::Result<Secured> {
    let other = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let provider = Arc::new(ring::default_provider());
    let begun = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let begun = begun.map_err(|error| other(error.to_string()))?;
    let config = match tls {
        Tls::Verified(ca) => {
            let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            for certificate in ca.iter().map(|file| authorities(file)).collect::<Result<Vec<_>, _>>().map_err(other)? {
                roots.add_parsable_certificates(certificate);
            }
            begun.with_root_certificates(roots)
        }
        _ => begun.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| other(format!("`{host}` is no name of a server")))?;
    let connection = ClientConnection::new(Arc::new(config.with_no_client_auth()), name);
    let mut connection = connection.map_err(|error| other(error.to_string()))?;
    // At once, so that a certificate which does not please is told as that.
    connection.complete_io(&mut stream)?;
    Ok(StreamOwned::new(connection, stream))
}

/// Takes any certificate, and signatures that fit it.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Servers with a certificate of an authority that only the test knows, on addresses of this machine that nobody has.
#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::client::{Address, Client};
    use super::super::parameters::Parameters;
    use super::super::{admin, postgres};
    use crate::{DiskLimits, Durability, Price, Setup, TargetSpec};

    fn kept(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
    }

    fn setup(dir: &Path) -> Setup {
        Setup {
            dir: dir.into(),
            durability: Durability::Write,
            budget_bytes: Some(32 << 20),
            io: None,
            compression: None,
            disk: DiskLimits::default(),
            seed: 1,
            price: Price::Int,
        }
    }

    /// Who is let in by `tls=`, with and without the authority, and what is said otherwise.
    fn is_let_in(url: &str, encrypted: &str) {
        let spec = |more: &str| TargetSpec::parse(&format!("{url}{more}")).unwrap();
        let open = |more: &str| super::super::open(spec(more), &setup(Path::new("/tmp"))).map(drop);
        let authority = format!("tls=on&ca={}", kept("ca.pem").display());
        assert!(open(&authority).is_ok(), "{:?}", open(&authority));
        assert!(open("tls=unverified").is_ok(), "{:?}", open("tls=unverified"));
        let stranger = open("tls=on").unwrap_err().to_string();
        assert!(stranger.contains("certificate") && stranger.contains("UnknownIssuer"), "{stranger}");
        assert!(open("tls=off").unwrap_err().to_string().contains("denies access"), "{:?}", open("tls=off"));
        let parameters = Parameters::parse(spec(&authority)).unwrap();
        let address = super::super::address_of(&parameters.place).unwrap();
        let mut client = Client::open(&address, parameters.protocol).unwrap();
        assert!(client.value(encrypted).unwrap().is_some_and(|cipher| cipher.contains("TLS")));
    }

    #[test]
    fn mariadb_is_reached_over_tls() {
        if std::env::var_os("TREFOIL_SERVERS").is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let cnf = dir.path().join("cnf");
        let (certificate, key) = (kept("server.pem"), kept("server.key"));
        let lines = ["[mysqld]", "port=3306", "bind_address=127.0.0.78"].map(str::to_owned);
        let files = [format!("ssl_cert={}", certificate.display()), format!("ssl_key={}", key.display())];
        std::fs::write(&cnf, [&lines[..], &files].concat().join("\n")).unwrap();
        let spec = TargetSpec::parse(&format!("server:mariadb?engine=innodb&cnf={}", cnf.display())).unwrap();
        let started = admin::start(&Parameters::parse(spec).unwrap(), &setup(dir.path()));
        let (mut private, _, mut client) = started.unwrap();
        client.say("CREATE USER coded@'%' IDENTIFIED BY 'a b' REQUIRE SSL").unwrap();
        client.say("GRANT ALL ON *.* TO coded@'%'").unwrap();
        let url = "mysql://coded:a%20b@127.0.0.78:3306/lab?engine=innodb&";
        is_let_in(
            url,
            "SELECT VARIABLE_VALUE FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'Ssl_version'",
        );
        // The password may stand elsewhere.
        std::fs::write(&cnf, "[client]\npassword = \"a b\"\n").unwrap();
        std::fs::set_permissions(&cnf, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let elsewhere =
            format!("mysql://coded@127.0.0.78:3306/lab?engine=innodb&tls=unverified&passfile={}", cnf.display());
        super::super::open(TargetSpec::parse(&elsewhere).unwrap(), &setup(dir.path())).unwrap();
        drop(client);
        private.stop().unwrap();
    }

    #[test]
    fn postgres_is_reached_over_tls() {
        if std::env::var_os("TREFOIL_POSTGRES").is_none() {
            return;
        }
        use std::os::unix::fs::{PermissionsExt, chown};
        let dir = tempfile::tempdir().unwrap();
        let allow = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        allow(dir.path(), 0o755);
        let [rules, cnf, key, certificate] =
            ["hba", "cnf", "server.key", "server.pem"].map(|name| dir.path().join(name));
        std::fs::copy(kept("server.key"), &key).unwrap();
        std::fs::copy(kept("server.pem"), &certificate).unwrap();
        allow(&key, 0o600);
        if let Some(user) = postgres::private::user(None).unwrap() {
            chown(&key, Some(user.uid), Some(user.gid)).unwrap();
        }
        std::fs::write(&rules, "local all all trust\nhostssl all all 127.0.0.0/8 scram-sha-256\n").unwrap();
        let text = [
            "listen_addresses = '127.0.0.77'".to_owned(),
            "ssl = on".into(),
            format!("hba_file = '{}'", rules.display()),
            format!("ssl_cert_file = '{}'", certificate.display()),
            format!("ssl_key_file = '{}'", key.display()),
        ];
        std::fs::write(&cnf, text.join("\n")).unwrap();
        let spec = TargetSpec::parse(&format!("server:postgres?cnf={}", cnf.display())).unwrap();
        let started = postgres::admin::start(&Parameters::parse(spec).unwrap(), &setup(dir.path()));
        let (mut private, address, mut client) = started.unwrap();
        let Address::Postgres(_) = address else { panic!("it is PostgreSQL") };
        client.say("CREATE ROLE coded LOGIN SUPERUSER PASSWORD 'a:b'").unwrap();
        is_let_in(
            "postgres://coded:a:b@127.0.0.77:5432/lab?",
            "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl",
        );
        drop(client);
        private.stop().unwrap();
    }
}
