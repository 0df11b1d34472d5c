//! Verification of signatures (RFC 7518 section 3, RFC 8037).

use crate::key::{Curve, Key, Material};
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, UnparsedPublicKey,
};

/// The variant names the type of key.
#[derive(Clone, Copy)]
pub enum Algorithm {
    Hmac(hmac::Algorithm),
    Rsa(&'static RsaParameters),
    Ec(Curve),
    Ed25519,
}

impl Algorithm {
    /// `alg` of a header.
    pub fn named(name: &str) -> Option<Algorithm> {
        Some(match name {
            "HS256" => Algorithm::Hmac(hmac::HMAC_SHA256),
            "HS384" => Algorithm::Hmac(hmac::HMAC_SHA384),
            "HS512" => Algorithm::Hmac(hmac::HMAC_SHA512),
            "RS256" => Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            "RS384" => Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            "RS512" => Algorithm::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            "PS256" => Algorithm::Rsa(&RSA_PSS_2048_8192_SHA256),
            "PS384" => Algorithm::Rsa(&RSA_PSS_2048_8192_SHA384),
            "PS512" => Algorithm::Rsa(&RSA_PSS_2048_8192_SHA512),
            "ES256" => Algorithm::Ec(Curve::P256),
            "ES384" => Algorithm::Ec(Curve::P384),
            "ES512" => Algorithm::Ec(Curve::P521),
            // RFC 9864 names the curve.
            "EdDSA" | "Ed25519" => Algorithm::Ed25519,
            _ => return None,
        })
    }
    pub fn fits(self, key: &Key) -> bool {
        match (self, &key.material) {
            (Algorithm::Hmac(_), Material::Oct(_))
            | (Algorithm::Rsa(_), Material::Rsa(..))
            | (Algorithm::Ed25519, Material::Ed25519(_)) => true,
            (Algorithm::Ec(curve), Material::Ec(own, _)) => curve == *own,
            _ => false,
        }
    }
    /// Verifies a signature; a key of another type verifies none.
    pub fn verify(self, key: &Key, message: &[u8], signature: &[u8]) -> bool {
        match (self, &key.material) {
            (Algorithm::Hmac(algorithm), Material::Oct(secret)) => {
                hmac::verify(&hmac::Key::new(algorithm, secret), message, signature).is_ok()
            }
            (Algorithm::Rsa(parameters), Material::Rsa(public, _)) => {
                UnparsedPublicKey::new(parameters, public).verify(message, signature).is_ok()
            }
            (Algorithm::Ec(curve), Material::Ec(own, public)) if curve == *own => {
                public.verify_sig(message, signature).is_ok()
            }
            (Algorithm::Ed25519, Material::Ed25519(public)) => public.verify_sig(message, signature).is_ok(),
            _ => false,
        }
    }
}
