//! Parts of a cipher suite as bits, and the words for them (`cipher_aliases` of OpenSSL 3.0).

pub(crate) mod version {
    pub const SSL3: u8 = 0;
    pub const TLS1: u8 = 1;
    pub const TLS1_2: u8 = 3;
}

pub(crate) mod key_exchange {
    pub const RSA: u16 = 1;
    pub const DHE: u16 = 1 << 1;
    pub const ECDHE: u16 = 1 << 2;
    pub const PSK: u16 = 1 << 3;
    pub const SRP: u16 = 1 << 5;
    pub const RSA_PSK: u16 = 1 << 6;
    pub const ECDHE_PSK: u16 = 1 << 7;
    pub const DHE_PSK: u16 = 1 << 8;
    pub const ANY_PSK: u16 = PSK | RSA_PSK | ECDHE_PSK | DHE_PSK;
}

pub(crate) mod auth {
    pub const RSA: u16 = 1;
    pub const DSS: u16 = 1 << 1;
    pub const NULL: u16 = 1 << 2;
    pub const ECDSA: u16 = 1 << 3;
    pub const PSK: u16 = 1 << 4;
    pub const SRP: u16 = 1 << 6;
    /// GOST certificates: no suite of the table has them.
    pub const GOST: u16 = 1 << 7;
    pub const ANY: u16 = u16::MAX;
}

pub(crate) mod encryption {
    pub const NULL: u32 = 1;
    pub const AES128: u32 = 1 << 1;
    pub const AES256: u32 = 1 << 2;
    pub const CAMELLIA128: u32 = 1 << 3;
    pub const CAMELLIA256: u32 = 1 << 4;
    pub const AES128_GCM: u32 = 1 << 5;
    pub const AES256_GCM: u32 = 1 << 6;
    pub const AES128_CCM: u32 = 1 << 7;
    pub const AES256_CCM: u32 = 1 << 8;
    pub const AES128_CCM8: u32 = 1 << 9;
    pub const AES256_CCM8: u32 = 1 << 10;
    pub const CHACHA20: u32 = 1 << 11;
    pub const ARIA128: u32 = 1 << 12;
    pub const ARIA256: u32 = 1 << 13;
    /// Ciphers absent from current builds: known words that match nothing.
    pub const GONE: u32 = 1 << 14;
    pub const AESCCM8: u32 = AES128_CCM8 | AES256_CCM8;
    pub const AESCCM: u32 = AES128_CCM | AES256_CCM | AESCCM8;
    pub const AESGCM: u32 = AES128_GCM | AES256_GCM;
    pub const AES: u32 = AES128 | AES256 | AESGCM | AESCCM;
}

pub(crate) mod mac {
    pub const MD5: u16 = 1;
    pub const SHA1: u16 = 1 << 1;
    pub const SHA256: u16 = 1 << 2;
    pub const SHA384: u16 = 1 << 3;
    pub const AEAD: u16 = 1 << 4;
    pub const GOST: u16 = 1 << 5;
}

pub(crate) mod strength {
    pub const HIGH: u8 = 1;
    pub const FIPS: u8 = 1 << 1;
    pub const NOT_DEFAULT: u8 = 1 << 2;
    /// `LOW`, `MEDIUM`: match no suite.
    pub const NONE_LEFT: u8 = 1 << 3;
}

/// Selection by a word; zero and `None` match all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    pub kx: u16,
    pub auth: u16,
    pub enc: u32,
    pub mac: u16,
    /// `HIGH`, `MEDIUM` or `LOW`; exclusive.
    pub level: u8,
    pub fips: bool,
    pub not_default: bool,
    pub version: Option<u8>,
    pub id: Option<u16>,
}

pub(crate) fn alias(word: &str) -> Option<Selector> {
    use {auth as a, encryption as e, key_exchange as k, mac as m};
    let any = Selector::default();
    let kx = |kx| Selector { kx, ..any };
    let au = |auth| Selector { auth, ..any };
    let en = |enc| Selector { enc, ..any };
    let ma = |mac| Selector { mac, ..any };
    let pair = |kx, auth| Selector { kx, auth, ..any };
    Some(match word {
        "ALL" => en(!e::NULL),
        "COMPLEMENTOFALL" | "eNULL" | "NULL" => en(e::NULL),
        "COMPLEMENTOFDEFAULT" => Selector { not_default: true, ..any },
        "kRSA" => kx(k::RSA),
        "kEDH" | "kDHE" | "DH" => kx(k::DHE),
        "kEECDH" | "kECDHE" | "ECDH" => kx(k::ECDHE),
        "kPSK" => kx(k::PSK),
        "kRSAPSK" => kx(k::RSA_PSK),
        "kECDHEPSK" => kx(k::ECDHE_PSK),
        "kDHEPSK" => kx(k::DHE_PSK),
        "kSRP" | "SRP" => kx(k::SRP),
        "kGOST" | "kGOST18" => kx(1 << 15),
        "aRSA" => au(a::RSA),
        "aDSS" | "DSS" => au(a::DSS),
        "aNULL" => au(a::NULL),
        "aECDSA" | "ECDSA" => au(a::ECDSA),
        "aPSK" => au(a::PSK),
        "aSRP" => au(a::SRP),
        "aGOST" | "aGOST01" | "aGOST12" => au(a::GOST),
        "EDH" | "DHE" => pair(k::DHE, !a::NULL & a::ANY),
        "EECDH" | "ECDHE" => pair(k::ECDHE, !a::NULL & a::ANY),
        "RSA" => pair(k::RSA, a::RSA),
        "ADH" => pair(k::DHE, a::NULL),
        "AECDH" => pair(k::ECDHE, a::NULL),
        "PSK" => kx(k::ANY_PSK),
        "3DES" | "RC4" | "RC2" | "IDEA" | "SEED" | "DES" | "GOST89" => en(e::GONE),
        "AES128" => en(e::AES128 | e::AES128_GCM | e::AES128_CCM | e::AES128_CCM8),
        "AES256" => en(e::AES256 | e::AES256_GCM | e::AES256_CCM | e::AES256_CCM8),
        "AES" => en(e::AES),
        "AESGCM" => en(e::AESGCM),
        "AESCCM" => en(e::AESCCM),
        "AESCCM8" => en(e::AESCCM8),
        "CAMELLIA128" => en(e::CAMELLIA128),
        "CAMELLIA256" => en(e::CAMELLIA256),
        "CAMELLIA" => en(e::CAMELLIA128 | e::CAMELLIA256),
        "CHACHA20" => en(e::CHACHA20),
        "ARIA128" => en(e::ARIA128),
        "ARIA256" => en(e::ARIA256),
        "ARIA" | "ARIAGCM" => en(e::ARIA128 | e::ARIA256),
        "CBC" => en(e::AES128 | e::AES256 | e::CAMELLIA128 | e::CAMELLIA256 | e::GONE),
        "MD5" => ma(m::MD5),
        "SHA1" | "SHA" => ma(m::SHA1),
        "SHA256" => ma(m::SHA256),
        "SHA384" => ma(m::SHA384),
        "GOST94" | "GOST89MAC" | "GOST12" | "GOST89MAC12" => ma(m::GOST),
        "SSLv3" => Selector { version: Some(version::SSL3), ..any },
        "TLSv1" | "TLSv1.0" => Selector { version: Some(version::TLS1), ..any },
        "TLSv1.2" => Selector { version: Some(version::TLS1_2), ..any },
        "LOW" | "MEDIUM" => Selector { level: strength::NONE_LEFT, ..any },
        "HIGH" => Selector { level: strength::HIGH, ..any },
        "FIPS" => Selector { fips: true, ..any },
        _ => return None,
    })
}
