//! Tables of TLS directives, written once: `ssl_*` for each area, and `proxy_ssl_*` for each prefix.

/// Declares the TLS directives of every area's servers plus an area's own, and `basics`, which converts them to
/// [`crate::ServerSaid`].
#[macro_export]
macro_rules! basic_tls_directives {
    ($(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident, $Area:ty; own { $($own:tt)* }) => {
        conf_schema::directives! {
            $(#[doc = $about])*
            pub struct $Plan from $Input {
                /// Certificate chain in PEM, the server's certificate first. May be repeated for several kinds of keys.
                /// A file, `data:` followed by the text, or a string with variables.
                ssl_certificate: conf_schema::value::ValueList<$crate::Pem<$Area>>,
                /// Private key of the certificate at the same position of the list.
                ssl_certificate_key: conf_schema::value::ValueList<$crate::Pem<$Area>>,
                /// File with passwords of encrypted keys, one per line.
                ssl_password_file: $crate::Passwords,
                /// Compresses certificates for clients that support it (RFC 8879, zlib).
                ssl_certificate_compression: conf_schema::value::Flag = "off",
                /// Parameters of finite-field Diffie-Hellman.
                /// No effect: key exchange uses only elliptic curves and ML-KEM; the file is checked, with a warning.
                ssl_dhparam: conf_schema::value::Text,
                /// Key exchange groups, in order of preference; `auto`: X25519MLKEM768, X25519, P-256, P-384.
                ssl_ecdh_curve: conf_schema::value::Text = "auto",
                /// TLS versions.
                /// Differs: versions before TLSv1.2 are not available; listed with others they are omitted, with a
                /// warning.
                ssl_protocols: $crate::TlsProtocols = "TLSv1.2 TLSv1.3",
                /// Cipher suites of TLSv1.2, in OpenSSL's syntax.
                /// Differs: only ECDHE with AES-GCM and ChaCha20-Poly1305 is available; other suites of the string are
                /// omitted.
                ssl_ciphers: $crate::Ciphers = "HIGH:!aNULL:!MD5",
                /// Requests and verifies client certificates.
                ssl_verify_client: $crate::Verify = "off",
                /// Maximum number of intermediate certificates in a client's chain.
                ssl_verify_depth: conf_schema::value::Number = "1",
                /// CA certificates that client certificates are verified with; their names are sent to clients.
                ssl_client_certificate: conf_schema::value::Text,
                /// CA certificates that client certificates and OCSP responses are verified with; their names are not
                /// sent.
                ssl_trusted_certificate: conf_schema::value::Text,
                /// Prefers the server's order of cipher suites over the client's.
                ssl_prefer_server_ciphers: conf_schema::value::Flag = "off",
                /// Session cache; all threads share one, whatever its name.
                ssl_session_cache: $crate::SslSessionCache,
                /// Enables session tickets.
                ssl_session_tickets: conf_schema::value::Flag = "on",
                /// File of 48 or 80 bytes with a ticket key; the first file encrypts, all decrypt. `sync` alone: all servers of
                /// the `shared_store`, which needs `key_file`, have one key, another one each hour.
                ssl_session_ticket_key: conf_schema::value::ValueList<conf_schema::value::Text>,
                /// Time during which a session can be resumed.
                ssl_session_timeout: conf_schema::value::Sec = "5m",
                /// Certificate revocation lists in PEM, one for every CA of the chain.
                ssl_crl: conf_schema::value::Text,
                /// OpenSSL configuration command.
                /// Differs: Certificate, PrivateKey, CipherString, Ciphersuites, Curves, Groups, MinProtocol,
                /// MaxProtocol, Protocol and the Options SessionTicket and ServerPreference are supported; others are
                /// errors.
                ssl_conf_command: conf_schema::value::ValueList<$crate::ConfCommand>,
                $($own)*
            }
        }

        impl $Plan {
            /// Settings of a server. `buffer_size`: plaintext bytes per record; `alpn`: offered protocols.
            fn basics(&self, buffer_size: usize, alpn: Vec<Vec<u8>>) -> $crate::ServerSaid<$Area> {
                $crate::ServerSaid {
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
                    ssl_certificate_cache: $crate::CacheOf::Off,
                    ssl_key_log: None,
                    ssl_ech_file: None,
                    ssl_ocsp: $crate::Ocsp::Off,
                    ssl_ocsp_responder: None,
                    ssl_ocsp_cache: $crate::OcspCache::Off,
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

/// Declares the TLS directives of http and stream servers plus an area's own, and `said`, which converts them to
/// [`crate::ServerSaid`].
#[macro_export]
macro_rules! server_tls_directives {
    ($(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident, $Area:ty; own { $($own:tt)* }) => {
        $crate::basic_tls_directives! {
            $(#[doc = $about])*
            pub struct $Plan from $Input, $Area;
            own {
                    /// Caches certificates whose file names contain variables.
                    ssl_certificate_cache: $crate::CacheOf = "off",
                    /// Keys for Encrypted ClientHello.
                    /// No effect: not available; -t warns.
                    ssl_ech_file: conf_schema::value::ValueList<conf_schema::value::Text>,
                    /// Checks the revocation of client certificates by OCSP.
                    ssl_ocsp: $crate::Ocsp = "off",
                    /// URL of the OCSP responder, instead of the one in the certificate.
                    ssl_ocsp_responder: conf_schema::value::Text,
                    /// Cache for OCSP responses about client certificates.
                    ssl_ocsp_cache: $crate::OcspCache = "off",
                    /// Staples an OCSP response to the certificate. Certificates selected by variables, to which nginx
                    /// staples no response, have one from the second handshake on.
                    ssl_stapling: conf_schema::value::Flag = "off",
                    /// File with the OCSP response to staple, in DER.
                    ssl_stapling_file: conf_schema::value::Text,
                    /// URL of the OCSP responder for stapling, instead of the one in the certificate.
                    ssl_stapling_responder: conf_schema::value::Text,
                    /// Verifies OCSP responses before they are stapled.
                    ssl_stapling_verify: conf_schema::value::Flag = "off",
                    /// Appends the secrets of client connections to this file, in the format SSLKEYLOGFILE, from which
                    /// Wireshark decrypts recorded traffic. For debugging only: the secrets reveal all traffic.
                    /// Differs: the file is created with mode 0600.
                    ssl_key_log: $crate::KeyLogFile,
                    /// Rejects TLS handshakes for this server.
                    ssl_reject_handshake: conf_schema::value::Flag = "off",
                $($own)*
            }
        }

        impl $Plan {
            /// Settings of a server. `buffer_size`: plaintext bytes per record; `early_data`: accepts 0-RTT; `alpn`:
            /// offered protocols.
            fn said(&self, buffer_size: usize, early_data: bool, alpn: Vec<Vec<u8>>) -> $crate::ServerSaid<$Area> {
                $crate::ServerSaid {
                    ssl_certificate_cache: self.ssl_certificate_cache.clone(),
                    ssl_ech_file: self.ssl_ech_file.clone(),
                    ssl_ocsp: self.ssl_ocsp,
                    ssl_ocsp_responder: self.ssl_ocsp_responder.clone(),
                    ssl_ocsp_cache: self.ssl_ocsp_cache.clone(),
                    ssl_stapling: self.ssl_stapling,
                    ssl_stapling_file: self.ssl_stapling_file.clone(),
                    ssl_stapling_responder: self.ssl_stapling_responder.clone(),
                    ssl_stapling_verify: self.ssl_stapling_verify,
                    ssl_key_log: self.ssl_key_log.clone(),
                    ssl_reject_handshake: self.ssl_reject_handshake,
                    early_data,
                    ..self.basics(buffer_size, alpn)
                }
            }
        }
    };
}

/// Declares a prefix's TLS directives towards servers, named in the rows' order, plus a protocol's own, and `tls`,
/// which returns them.
#[macro_export]
macro_rules! upstream_tls_directives {
    ($(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident, $Area:ty, $prefix:literal;
     $certificate:ident $certificate_key:ident $certificate_cache:ident $ciphers:ident $conf_command:ident $crl:ident
     $name:ident $password_file:ident $protocols:ident $server_name:ident $session_reuse:ident $trusted:ident
     $verify:ident $verify_depth:ident $key_log:ident
     own { $($own:tt)* }
    ) => {
        conf_schema::directives! {
            $(#[doc = $about])*
            pub struct $Plan from $Input {
                $($own)*
                /// Client certificate for TLS connections to the server, with its chain.
                $certificate: $crate::Pem<$Area>,
                /// Private key of the client certificate.
                $certificate_key: $crate::Pem<$Area>,
                /// Caches certificates whose file names contain variables.
                $certificate_cache: $crate::CacheOf = "off",
                /// Cipher suites of TLSv1.2, in OpenSSL's syntax.
                /// Differs: as `ssl_ciphers`.
                $ciphers: conf_schema::value::Text = "DEFAULT",
                /// OpenSSL configuration command.
                /// Differs: as `ssl_conf_command`.
                $conf_command: conf_schema::value::ValueList<$crate::ConfCommand>,
                /// Certificate revocation lists in PEM, one for every CA of the chain.
                $crl: conf_schema::value::Text,
                /// Name that the server's certificate is verified against, and that is sent with SNI.
                $name: $crate::Template<$Area>,
                /// File with passwords of encrypted keys, one per line.
                $password_file: $crate::Passwords,
                /// TLS versions.
                /// Differs: versions before TLSv1.2 are not available; listed with others they are omitted, with a
                /// warning.
                $protocols: $crate::TlsProtocols = "TLSv1.2 TLSv1.3",
                /// Sends the server's name in the handshake (SNI).
                $server_name: conf_schema::value::Flag = "off",
                /// Resumes TLS sessions.
                $session_reuse: conf_schema::value::Flag = "on",
                /// CA certificates that the server's certificate is verified with.
                $trusted: conf_schema::value::Text,
                /// Verifies the server's certificate.
                $verify: conf_schema::value::Flag = "off",
                /// Maximum number of intermediate certificates in the server's chain.
                $verify_depth: conf_schema::value::Number = "1",
                /// Appends the secrets of connections to the server to this file.
                /// Differs: as `ssl_key_log`.
                $key_log: $crate::KeyLogFile,
            }
        }

        impl $Plan {
            fn tls(&self) -> $crate::UpstreamTlsConf<'_, $Area> {
                $crate::UpstreamTlsConf {
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
                    verify_names: &[],
                    key_log: self.$key_log.as_ref(),
                    alpn: &[],
                }
            }
        }
    };
}
