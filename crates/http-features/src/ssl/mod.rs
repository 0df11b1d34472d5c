//! ssl (nginx: `ngx_http_ssl_module`): connections to clients over TLS.
//!
//! What becomes of the directives, and the variables, stand in `session_engine::tls`; what the rules do is in the crate `tls`.

mod ocsp;

use crate::shared::tls::{CacheOf, Command, Passwords, Pem, TlsProtocols};
use conf_schema::value::{Flag, List, Number, Sec, Size, Text};
use conf_schema::{Area, Contexts, Problem, Table, directives};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HandlerOrder, HttpBuild, HttpPlan, Request};
use session_engine::server_said;
use session_engine::tls::{self as shared, Ocsp, OcspCache, ServerSaid, Sessions, Stapler, Verify, report};
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What the module is told in a block.
    pub struct SslConf from SslInput {
        /// The certificate that is shown to clients, with those between it and its authority; more than one for several kinds of
        /// keys. A file, `data:` and its text, or a string with variables.
        ssl_certificate: List<Pem>,
        /// The key of the certificate in the same place of the list.
        ssl_certificate_key: List<Pem>,
        /// Keeps certificates that depend on variables.
        ssl_certificate_cache: CacheOf = "off",
        /// Keys of encrypted ClientHellos.
        /// No effect: not available, with a warning.
        ssl_ech_file: List<Text>,
        /// Passwords of encrypted keys, one a line.
        ssl_password_file: Passwords,
        /// Whether certificates are sent compressed to clients that can read it (RFC 8879, zlib).
        ssl_certificate_compression: Flag = "off",
        /// Parameters of key exchange over finite fields.
        /// No effect: keys are exchanged over elliptic curves and ML-KEM only; the file is checked, and a warning says so.
        ssl_dhparam: Text,
        /// Groups of the key exchange, in order of preference; `auto`: X25519MLKEM768, X25519, P-256, P-384.
        ssl_ecdh_curve: Text = "auto",
        /// Versions of the protocol.
        /// Differs: those before TLSv1.2 are not available; with others listed they are left out, with a warning.
        ssl_protocols: TlsProtocols = "TLSv1.2 TLSv1.3",
        /// Cipher suites of TLSv1.2 in OpenSSL's language.
        /// Differs: available are ECDHE with AES-GCM and ChaCha20-Poly1305; what a string selects besides is left out.
        ssl_ciphers: Text = "HIGH:!aNULL:!MD5",
        /// Octets in a record: small ones arrive sooner, large ones cost less.
        ssl_buffer_size: Size = "16k",
        /// Whether clients are asked for a certificate.
        ssl_verify_client: Verify = "off",
        /// Certificates that may stand between a client's and its authority.
        ssl_verify_depth: Number = "1",
        /// Authorities of clients, whose names are sent to them.
        ssl_client_certificate: Text,
        /// Authorities of clients, whose names are not sent.
        ssl_trusted_certificate: Text,
        /// Whether the server's order of suites goes before the client's.
        ssl_prefer_server_ciphers: Flag = "off",
        /// Where sessions are kept: all threads share a cache, whatever it is called.
        ssl_session_cache: Sessions,
        /// Whether clients keep their sessions themselves, in tickets.
        ssl_session_tickets: Flag = "on",
        /// A file of 48 or 80 octets with the key of tickets; the first encrypts, all decrypt.
        ssl_session_ticket_key: List<Text>,
        /// How long a session may be resumed.
        ssl_session_timeout: Sec = "5m",
        /// Revoked certificates: a list for every authority of a chain.
        ssl_crl: Text,
        /// Whether the revocation of clients' certificates is asked of their authority.
        ssl_ocsp: Ocsp = "off",
        /// Where it is asked, in place of what certificates say.
        ssl_ocsp_responder: Text,
        /// Where answers are kept.
        ssl_ocsp_cache: OcspCache = "off",
        /// Whether an answer of the authority goes with the certificate.
        ssl_stapling: Flag = "off",
        /// A file with the answer, in DER.
        ssl_stapling_file: Text,
        /// Where it is asked, in place of what the certificate says.
        ssl_stapling_responder: Text,
        /// Whether the answer is verified.
        ssl_stapling_verify: Flag = "off",
        /// Whether requests are taken before the handshake has ended (0-RTT). They may be replays: see `$ssl_early_data`.
        ssl_early_data: Flag = "off",
        /// Commands of OpenSSL.
        /// Differs: Certificate, PrivateKey, CipherString, Ciphersuites, Curves, Groups, MinProtocol, MaxProtocol, Protocol
        /// and the Options SessionTicket and ServerPreference mean something here; others are errors.
        ssl_conf_command: List<Command>,
        /// Whether handshakes for this server are rejected.
        ssl_reject_handshake: Flag = "off",
    }
}

/// What is offered to clients that ask, without HTTP/2.
const ALPN: [&[u8]; 3] = [b"http/1.1", b"http/1.0", b"http/0.9"];

/// The feature.
pub struct Ssl;

impl Feature for Ssl {
    fn table(&self) -> Table {
        SslConf::table("ssl", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        shared::Variables::<Request>::ALL
    }
    fn plan_http(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        http.background.push(Arc::new(Stapler::<HttpPlan>::default()));
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<SslConf>() else { return Ok(()) };
        if block.context != Contexts::server {
            return Ok(());
        }
        let said: ServerSaid<Request> = server_said!(conf,
            buffer_size: usize::try_from(conf.ssl_buffer_size.0).unwrap_or(usize::MAX),
            early_data: conf.ssl_early_data,
            alpn: ALPN.iter().map(|p| p.to_vec()).collect(),
        );
        if let Some(mut tls) = shared::server(&said, block.cx)? {
            tls.names = report::hosts(block.server_names);
            report::certificates(&tls, block.cx);
            if let Some(ask) = shared::asking(&said)? {
                block.handle(HandlerOrder::ServerOcsp, Arc::new(ocsp::Ask(Arc::new(ask))));
            }
            block.location.things.push(Arc::new(Arc::new(tls)));
        }
        Ok(())
    }
}
