//! The directives of TLS as tables, written once: `ssl_*` of servers, for each area, and `proxy_ssl_*` under each prefix.

/// Declares a table with the directives of TLS that the servers of every area have and an area's own, and a function `basics`
/// that takes them over into a [`crate::tls::ServerSaid`]; what is no directive of all areas is given to it, or off.
#[macro_export]
macro_rules! basic_tls_directives {
    ($(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident, $S:ty; own { $($own:tt)* }) => {
        conf_schema::directives! {
            $(#[doc = $about])*
            pub struct $Plan from $Input {
                /// The certificate that is shown to clients, with those between it and its authority; more than one for several kinds of
                /// keys. A file, `data:` and its text, or a string with variables.
                ssl_certificate: conf_schema::value::List<$crate::tls::Pem<$S>>,
                /// The key of the certificate in the same place of the list.
                ssl_certificate_key: conf_schema::value::List<$crate::tls::Pem<$S>>,
                /// Passwords of encrypted keys, one a line.
                ssl_password_file: $crate::tls::Passwords,
                /// Whether certificates are sent compressed to clients that can read it (RFC 8879, zlib).
                ssl_certificate_compression: conf_schema::value::Flag = "off",
                /// Parameters of key exchange over finite fields.
                /// No effect: keys are exchanged over elliptic curves and ML-KEM only; the file is checked, and a warning says so.
                ssl_dhparam: conf_schema::value::Text,
                /// Groups of the key exchange, in order of preference; `auto`: X25519MLKEM768, X25519, P-256, P-384.
                ssl_ecdh_curve: conf_schema::value::Text = "auto",
                /// Versions of the protocol.
                /// Differs: those before TLSv1.2 are not available; with others listed they are left out, with a warning.
                ssl_protocols: $crate::tls::TlsProtocols = "TLSv1.2 TLSv1.3",
                /// Cipher suites of TLSv1.2 in OpenSSL's language.
                /// Differs: available are ECDHE with AES-GCM and ChaCha20-Poly1305; what a string selects besides is left out.
                ssl_ciphers: $crate::tls::Ciphers = "HIGH:!aNULL:!MD5",
                /// Whether clients are asked for a certificate.
                ssl_verify_client: $crate::tls::Verify = "off",
                /// Certificates that may stand between a client's and its authority.
                ssl_verify_depth: conf_schema::value::Number = "1",
                /// Authorities of clients, whose names are sent to them.
                ssl_client_certificate: conf_schema::value::Text,
                /// Authorities of clients, whose names are not sent.
                ssl_trusted_certificate: conf_schema::value::Text,
                /// Whether the server's order of suites goes before the client's.
                ssl_prefer_server_ciphers: conf_schema::value::Flag = "off",
                /// Where sessions are kept: all threads share a cache, whatever it is called.
                ssl_session_cache: $crate::tls::Sessions,
                /// Whether clients keep their sessions themselves, in tickets.
                ssl_session_tickets: conf_schema::value::Flag = "on",
                /// A file of 48 or 80 octets with the key of tickets; the first encrypts, all decrypt.
                ssl_session_ticket_key: conf_schema::value::List<conf_schema::value::Text>,
                /// How long a session may be resumed.
                ssl_session_timeout: conf_schema::value::Sec = "5m",
                /// Revoked certificates: a list for every authority of a chain.
                ssl_crl: conf_schema::value::Text,
                /// Commands of OpenSSL.
                /// Differs: Certificate, PrivateKey, CipherString, Ciphersuites, Curves, Groups, MinProtocol, MaxProtocol, Protocol
                /// and the Options SessionTicket and ServerPreference mean something here; others are errors.
                ssl_conf_command: conf_schema::value::List<$crate::tls::Command>,
                $($own)*
            }
        }

        impl $Plan {
            /// What is said of a server. `buffer_size`: octets of plaintext in a record; `alpn`: what is offered to clients that ask.
            fn basics(&self, buffer_size: usize, alpn: Vec<Vec<u8>>) -> $crate::tls::ServerSaid<$S> {
                $crate::tls::ServerSaid {
                    ssl_certificate: self.ssl_certificate.clone(),
                    ssl_certificate_key: self.ssl_certificate_key.clone(),
                    ssl_password_file: self.ssl_password_file.clone(),
                    ssl_certificate_compression: self.ssl_certificate_compression,
                    ssl_dhparam: self.ssl_dhparam.clone(),
                    ssl_ecdh_curve: self.ssl_ecdh_curve.clone(),
                    ssl_protocols: self.ssl_protocols,
                    ssl_ciphers: self.ssl_ciphers.clone(),
                    ssl_verify_client: self.ssl_verify_client,
                    ssl_verify_depth: self.ssl_verify_depth.0,
                    ssl_client_certificate: self.ssl_client_certificate.clone(),
                    ssl_trusted_certificate: self.ssl_trusted_certificate.clone(),
                    ssl_prefer_server_ciphers: self.ssl_prefer_server_ciphers,
                    ssl_session_cache: self.ssl_session_cache.clone(),
                    ssl_session_tickets: self.ssl_session_tickets,
                    ssl_session_ticket_key: self.ssl_session_ticket_key.clone(),
                    ssl_session_timeout: self.ssl_session_timeout.0,
                    ssl_crl: self.ssl_crl.clone(),
                    ssl_conf_command: self.ssl_conf_command.clone(),
                    ssl_certificate_cache: $crate::tls::CacheOf::Off,
                    ssl_ech_file: None,
                    ssl_ocsp: $crate::tls::Ocsp::Off,
                    ssl_ocsp_responder: None,
                    ssl_ocsp_cache: $crate::tls::OcspCache::Off,
                    ssl_stapling: false,
                    ssl_stapling_file: None,
                    ssl_stapling_responder: None,
                    ssl_stapling_verify: false,
                    ssl_reject_handshake: false,
                    early_data: false,
                    buffer_size,
                    alpn,
                }
            }
        }
    };
}

/// Declares a table with the directives of a server's TLS in the areas http and stream and an area's own, and a function `said`
/// that takes them over into a [`crate::tls::ServerSaid`]; what is no directive of both areas is given to it.
#[macro_export]
macro_rules! server_tls_directives {
    ($(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident, $S:ty; own { $($own:tt)* }) => {
        $crate::basic_tls_directives! {
            $(#[doc = $about])*
            pub struct $Plan from $Input, $S;
            own {
                    /// Keeps certificates that depend on variables.
                    ssl_certificate_cache: $crate::tls::CacheOf = "off",
                    /// Keys of encrypted ClientHellos.
                    /// No effect: not available, with a warning.
                    ssl_ech_file: conf_schema::value::List<conf_schema::value::Text>,
                    /// Whether the revocation of clients' certificates is asked of their authority.
                    ssl_ocsp: $crate::tls::Ocsp = "off",
                    /// Where it is asked, in place of what certificates say.
                    ssl_ocsp_responder: conf_schema::value::Text,
                    /// Where answers are kept.
                    ssl_ocsp_cache: $crate::tls::OcspCache = "off",
                    /// Whether an answer of the authority goes with the certificate.
                    ssl_stapling: conf_schema::value::Flag = "off",
                    /// A file with the answer, in DER.
                    ssl_stapling_file: conf_schema::value::Text,
                    /// Where it is asked, in place of what the certificate says.
                    ssl_stapling_responder: conf_schema::value::Text,
                    /// Whether the answer is verified.
                    ssl_stapling_verify: conf_schema::value::Flag = "off",
                    /// Whether handshakes for this server are rejected.
                    ssl_reject_handshake: conf_schema::value::Flag = "off",
                $($own)*
            }
        }

        impl $Plan {
            /// What is said of a server. `buffer_size`: octets of plaintext in a record; `early_data`: 0-RTT is taken; `alpn`: what is
            /// offered to clients that ask.
            fn said(&self, buffer_size: usize, early_data: bool, alpn: Vec<Vec<u8>>) -> $crate::tls::ServerSaid<$S> {
                $crate::tls::ServerSaid {
                    ssl_certificate_cache: self.ssl_certificate_cache.clone(),
                    ssl_ech_file: self.ssl_ech_file.clone(),
                    ssl_ocsp: self.ssl_ocsp,
                    ssl_ocsp_responder: self.ssl_ocsp_responder.clone(),
                    ssl_ocsp_cache: self.ssl_ocsp_cache.clone(),
                    ssl_stapling: self.ssl_stapling,
                    ssl_stapling_file: self.ssl_stapling_file.clone(),
                    ssl_stapling_responder: self.ssl_stapling_responder.clone(),
                    ssl_stapling_verify: self.ssl_stapling_verify,
                    ssl_reject_handshake: self.ssl_reject_handshake,
                    early_data,
                    ..self.basics(buffer_size, alpn)
                }
            }
        }
    };
}

/// Declares a table with the directives of TLS towards servers, under the names of a prefix in the order of the rows below, and a
/// protocol's own; and a function `tls` that says them.
#[macro_export]
macro_rules! upstream_tls_directives {
    ($(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident, $S:ty, $prefix:literal;
     $certificate:ident $certificate_key:ident $certificate_cache:ident $ciphers:ident $conf_command:ident $crl:ident
     $name:ident $password_file:ident $protocols:ident $server_name:ident $session_reuse:ident $trusted:ident
     $verify:ident $verify_depth:ident
     own { $($own:tt)* }
    ) => {
        conf_schema::directives! {
            $(#[doc = $about])*
            pub struct $Plan from $Input {
                $($own)*
                /// The certificate that is shown to a server over TLS, with those between it and its authority.
                $certificate: $crate::tls::Pem<$S>,
                /// Its key.
                $certificate_key: $crate::tls::Pem<$S>,
                /// Keeps certificates that depend on variables.
                $certificate_cache: $crate::tls::CacheOf = "off",
                /// Cipher suites of TLSv1.2 in OpenSSL's language.
                /// Differs: as `ssl_ciphers`.
                $ciphers: conf_schema::value::Text = "DEFAULT",
                /// Commands of OpenSSL.
                /// Differs: as `ssl_conf_command`.
                $conf_command: conf_schema::value::List<$crate::tls::Command>,
                /// Revoked certificates: a list for every authority of a chain.
                $crl: conf_schema::value::Text,
                /// The name that the server's certificate is for, and that is sent to it.
                $name: $crate::Template<$S>,
                /// Passwords of encrypted keys, one a line.
                $password_file: $crate::tls::Passwords,
                /// Versions of the protocol.
                /// Differs: those before TLSv1.2 are not available; with others listed they are left out, with a warning.
                $protocols: $crate::tls::TlsProtocols = "TLSv1.2 TLSv1.3",
                /// Whether the name is sent in the handshake (SNI).
                $server_name: conf_schema::value::Flag = "off",
                /// Whether sessions are resumed.
                $session_reuse: conf_schema::value::Flag = "on",
                /// Authorities of servers.
                $trusted: conf_schema::value::Text,
                /// Whether the server's certificate is verified.
                $verify: conf_schema::value::Flag = "off",
                /// Certificates that may stand between a server's and its authority.
                $verify_depth: conf_schema::value::Number = "1",
            }
        }

        impl $Plan {
            /// What is said of TLS.
            fn tls(&self) -> $crate::tls::Said<'_, $S> {
                $crate::tls::Said {
                    prefix: $prefix,
                    certificate: self.$certificate.as_ref(),
                    certificate_key: self.$certificate_key.as_ref(),
                    certificate_cache: &self.$certificate_cache,
                    ciphers: &self.$ciphers,
                    conf_command: self.$conf_command.as_ref().map(|l| l.0.as_slice()).unwrap_or_default(),
                    crl: self.$crl.as_ref(),
                    name: self.$name.as_ref(),
                    password_file: self.$password_file.as_ref(),
                    protocols: self.$protocols,
                    server_name: self.$server_name,
                    session_reuse: self.$session_reuse,
                    trusted_certificate: self.$trusted.as_ref(),
                    verify: self.$verify,
                    verify_depth: self.$verify_depth.0,
                    alpn: &[],
                }
            }
        }
    };
}
