//! TLV fields of version 2, by their names in `$proxy_protocol_tlv_*` (`ngx_proxy_protocol_get_tlv`).

use crate::parse::Header;

pub(crate) const ALPN: u8 = 0x01;
pub(crate) const AUTHORITY: u8 = 0x02;
pub(crate) const CRC32C: u8 = 0x03;
pub(crate) const UNIQUE_ID: u8 = 0x05;
pub(crate) const SSL: u8 = 0x20;
pub(crate) const SSL_VERSION: u8 = 0x21;
pub(crate) const SSL_CN: u8 = 0x22;
pub(crate) const SSL_CIPHER: u8 = 0x23;
pub(crate) const SSL_SIG_ALG: u8 = 0x24;
pub(crate) const SSL_KEY_ALG: u8 = 0x25;
pub(crate) const NETNS: u8 = 0x30;

/// A field of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// Type of the field.
    pub kind: u8,
    /// Its value.
    pub value: &'a [u8],
}

/// The fields do not fill their space: `broken PROXY protocol TLV`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlvError;

/// The fields in a range of bytes. Ends after a field that does not fit.
#[derive(Clone, Debug)]
pub struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    /// Reads the fields of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Tlvs(bytes)
    }

    /// First field of a kind, even before a broken one.
    pub fn find(self, kind: u8) -> Result<Option<&'a [u8]>, TlvError> {
        for tlv in self {
            let tlv = tlv?;
            if tlv.kind == kind {
                return Ok(Some(tlv.value));
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, TlvError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let tlv = self.0.split_first_chunk::<3>().and_then(|(&[kind, high, low], rest)| {
            let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
            self.0 = rest;
            Some(Tlv { kind, value })
        });
        if tlv.is_none() {
            self.0 = &[];
        }
        Some(tlv.ok_or(TlvError))
    }
}

/// Fixed part of the SSL field; its subfields follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SslInfo<'a> {
    /// Bit 0: TLS; bit 1: certificate on this connection; bit 2: in this session.
    pub client: u8,
    /// 0 for a verified client certificate.
    pub verify: u32,
    tlvs: &'a [u8],
}

impl<'a> SslInfo<'a> {
    fn read(value: &'a [u8]) -> Option<Self> {
        let (&[client, a, b, c, d], tlvs) = value.split_first_chunk()?;
        Some(SslInfo { client, verify: u32::from_be_bytes([a, b, c, d]), tlvs })
    }

    /// Returns the subfields: version, cipher, names of the certificate.
    pub fn tlvs(&self) -> Tlvs<'a> {
        Tlvs(self.tlvs)
    }
}

/// Name after `$proxy_protocol_tlv_`, resolved while the configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlvName {
    /// The field of this type.
    Kind(u8),
    /// The subfield of this type in the SSL field.
    Ssl(u8),
    /// `ssl_verify`: decimal number.
    SslVerify,
    /// Number that no kind can have (`0x123`): never found.
    Never,
}

impl TlvName {
    /// Resolves `alpn`, `authority`, `unique_id`, `ssl`, `netns`, `0x..`, and after `ssl_`: `version`, `cn`, `cipher`,
    /// `sig_alg`, `key_alg`, `verify`, `0x..`.
    pub fn of(name: &str) -> Option<TlvName> {
        let (name, ssl) = match name.strip_prefix("ssl_") {
            Some(rest) => (rest, true),
            None => (name, false),
        };
        let kind = match (name, ssl) {
            ("verify", true) => return Some(TlvName::SslVerify),
            ("alpn", false) => ALPN,
            ("authority", false) => AUTHORITY,
            ("unique_id", false) => UNIQUE_ID,
            ("ssl", false) => SSL,
            ("netns", false) => NETNS,
            ("version", true) => SSL_VERSION,
            ("cn", true) => SSL_CN,
            ("cipher", true) => SSL_CIPHER,
            ("sig_alg", true) => SSL_SIG_ALG,
            ("key_alg", true) => SSL_KEY_ALG,
            _ => {
                let digits = name.strip_prefix("0x").filter(|d| !d.is_empty())?;
                if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return None;
                }
                match u8::from_str_radix(digits, 16) {
                    Ok(kind) => kind,
                    Err(_) => return Some(TlvName::Never),
                }
            }
        };
        Some(if ssl { TlvName::Ssl(kind) } else { TlvName::Kind(kind) })
    }
}

impl Header {
    /// Returns the fields. `buf`: the buffer that was parsed.
    pub fn tlvs<'a>(&self, buf: &'a [u8]) -> Tlvs<'a> {
        Tlvs(buf.get(self.tlvs.clone()).unwrap_or(&[]))
    }

    /// Returns the SSL field; `None` if the header has none. Fails if the fields before it or itself are cut.
    pub fn ssl<'a>(&self, buf: &'a [u8]) -> Result<Option<SslInfo<'a>>, TlvError> {
        match self.tlvs(buf).find(SSL)? {
            None => Ok(None),
            Some(value) => SslInfo::read(value).map(Some).ok_or(TlvError),
        }
    }

    /// Appends a variable's value to `out`; false if absent.
    pub fn tlv(&self, buf: &[u8], name: TlvName, out: &mut Vec<u8>) -> Result<bool, TlvError> {
        let value = match name {
            TlvName::Never => None,
            TlvName::Kind(kind) => self.tlvs(buf).find(kind)?,
            TlvName::Ssl(kind) => match self.ssl(buf)? {
                None => None,
                Some(ssl) => ssl.tlvs().find(kind)?,
            },
            TlvName::SslVerify => {
                let Some(ssl) = self.ssl(buf)? else { return Ok(false) };
                out.extend_from_slice(ssl.verify.to_string().as_bytes());
                return Ok(true);
            }
        };
        out.extend_from_slice(value.unwrap_or(&[]));
        Ok(value.is_some())
    }
}
