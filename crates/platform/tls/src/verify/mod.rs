//! Verifies chains by OpenSSL's rules (`X509_verify_cert` of 3.0).
//! Unlike webpki, accepts version 1 certificates, self-signed anchors, common names, depths, and revocation lists for
//! whole chains, and returns OpenSSL's verdict instead of failing the handshake.

mod chain;
mod crl;
mod host;
mod roles;
mod signature;

pub use chain::{Purpose, Trust};
pub use crl::RevocationList;
pub use host::{AlternativeName, matches_address, matches_host};
pub use roles::AnyServer;
pub(crate) use roles::{ClientVerifier, RefusedRole, ServerVerifier};
pub use signature::verify_signature;

/// OpenSSL's `X509_V_ERR_*`, 0 for success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VerifyVerdict(pub u16);

macro_rules! verdicts {
    ($($name:ident = $code:literal $text:literal;)*) => {
        impl VerifyVerdict {
            $(#[doc = $text] pub const $name: VerifyVerdict = VerifyVerdict($code);)*
            /// OpenSSL's text, for `$ssl_client_verify` and the error log.
            pub fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $text,)*
                    _ => "unknown certificate verification error",
                }
            }
        }
    };
}

verdicts! {
    OK = 0 "ok";
    UNSPECIFIED = 1 "unspecified certificate verification error";
    UNABLE_TO_GET_ISSUER = 2 "unable to get issuer certificate";
    NO_CRL = 3 "unable to get certificate CRL";
    BAD_SIGNATURE = 7 "certificate signature failure";
    BAD_CRL_SIGNATURE = 8 "CRL signature failure";
    NOT_YET_VALID = 9 "certificate is not yet valid";
    EXPIRED = 10 "certificate has expired";
    CRL_NOT_YET_VALID = 11 "CRL is not yet valid";
    CRL_EXPIRED = 12 "CRL has expired";
    SELF_SIGNED = 18 "self-signed certificate";
    SELF_SIGNED_IN_CHAIN = 19 "self-signed certificate in certificate chain";
    NO_LOCAL_ISSUER = 20 "unable to get local issuer certificate";
    UNVERIFIED_LEAF = 21 "unable to verify the first certificate";
    TOO_LONG = 22 "certificate chain too long";
    REVOKED = 23 "certificate revoked";
    PATH_LENGTH = 25 "path length constraint exceeded";
    PURPOSE = 26 "unsuitable certificate purpose";
    UNTRUSTED = 27 "certificate not trusted";
    NO_CRL_ISSUER = 33 "unable to get CRL issuer certificate";
    CRITICAL_EXTENSION = 34 "unhandled critical extension";
    NO_CRL_SIGN = 35 "key usage does not include CRL signing";
    CRITICAL_CRL_EXTENSION = 36 "unhandled critical CRL extension";
    NOT_PERMITTED = 47 "permitted subtree violation";
    EXCLUDED = 48 "excluded subtree violation";
    CONSTRAINT_TYPE = 51 "unsupported name constraint type";
    HOST = 62 "hostname mismatch";
    INVALID_CA = 79 "invalid CA certificate";
}

impl VerifyVerdict {
    /// Tells whether the verification succeeded.
    pub fn is_ok(self) -> bool {
        self == VerifyVerdict::OK
    }
    /// Errors that `optional_no_ca` ignores (`ngx_ssl_verify_error_optional`).
    pub fn is_missing_authority(self) -> bool {
        matches!(
            self,
            VerifyVerdict::SELF_SIGNED
                | VerifyVerdict::SELF_SIGNED_IN_CHAIN
                | VerifyVerdict::NO_LOCAL_ISSUER
                | VerifyVerdict::UNTRUSTED
                | VerifyVerdict::UNVERIFIED_LEAF
        )
    }
}
