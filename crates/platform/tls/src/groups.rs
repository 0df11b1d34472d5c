//! Key exchange groups: OpenSSL's names, `ssl_ecdh_curve`, `$ssl_curve` and `$ssl_curves`.

use crate::ciphers::provider;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, ProtocolVersion};
use std::sync::LazyLock;

/// OpenSSL's names, number, and printed name of each group.
const GROUPS: &[(&[&str], u16, &str)] = &[
    (&["X25519MLKEM768"], 0x11ec, "X25519MLKEM768"),
    (&["X25519", "x25519"], 29, "X25519"),
    (&["prime256v1", "secp256r1", "P-256"], 23, "prime256v1"),
    (&["secp384r1", "P-384"], 24, "secp384r1"),
    (&["secp521r1", "P-521"], 25, "secp521r1"),
    (&["X448", "x448"], 30, "X448"),
    (&["SecP256r1MLKEM768"], 0x11eb, "SecP256r1MLKEM768"),
    (&["SecP384r1MLKEM1024"], 0x11ed, "SecP384r1MLKEM1024"),
    (&["sect163k1", "K-163"], 1, "sect163k1"),
    (&["sect233k1", "K-233"], 6, "sect233k1"),
    (&["sect233r1", "B-233"], 7, "sect233r1"),
    (&["sect283k1", "K-283"], 9, "sect283k1"),
    (&["sect283r1", "B-283"], 10, "sect283r1"),
    (&["sect409k1", "K-409"], 11, "sect409k1"),
    (&["sect409r1", "B-409"], 12, "sect409r1"),
    (&["sect571k1", "K-571"], 13, "sect571k1"),
    (&["sect571r1", "B-571"], 14, "sect571r1"),
    (&["prime192v1", "secp192r1", "P-192"], 19, "prime192v1"),
    (&["secp224r1", "P-224"], 21, "secp224r1"),
    (&["secp256k1"], 22, "secp256k1"),
    (&["brainpoolP256r1"], 26, "brainpoolP256r1"),
    (&["brainpoolP384r1"], 27, "brainpoolP384r1"),
    (&["brainpoolP512r1"], 28, "brainpoolP512r1"),
    (&["ffdhe2048"], 0x100, "ffdhe2048"),
    (&["ffdhe3072"], 0x101, "ffdhe3072"),
    (&["ffdhe4096"], 0x102, "ffdhe4096"),
    (&["ffdhe6144"], 0x103, "ffdhe6144"),
    (&["ffdhe8192"], 0x104, "ffdhe8192"),
];

/// Returns OpenSSL's name of a group, or its number in hexadecimal.
pub fn group_name(id: u16) -> String {
    GROUPS.iter().find(|(_, n, _)| *n == id).map_or_else(|| format!("0x{id:04x}"), |(_, _, name)| (*name).to_string())
}

/// A group that reports its use, for the sessions of TLS 1.2.
#[derive(Debug)]
struct RecordedGroups(&'static dyn SupportedKxGroup);

impl SupportedKxGroup for RecordedGroups {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        crate::current::exchange(u16::from(self.0.name()));
        self.0.start()
    }
    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        self.0.start_and_complete(peer)
    }
    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        self.0.ffdhe_group()
    }
    fn name(&self) -> NamedGroup {
        self.0.name()
    }
    fn fips(&self) -> bool {
        self.0.fips()
    }
    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        self.0.usable_for_version(version)
    }
}

/// Returns the groups as they report their use.
pub(crate) fn recording(groups: &[&'static dyn SupportedKxGroup]) -> Vec<&'static dyn SupportedKxGroup> {
    static ALL: LazyLock<Vec<RecordedGroups>> =
        LazyLock::new(|| provider().kx_groups.iter().map(|group| RecordedGroups(*group)).collect());
    let of = |group: &&'static dyn SupportedKxGroup| -> &'static dyn SupportedKxGroup {
        match ALL.iter().find(|known| known.name() == group.name()) {
            Some(recording) => recording,
            None => *group,
        }
    };
    groups.iter().map(of).collect()
}

/// The result of a list of groups.
#[derive(Debug, Default)]
pub struct SelectedGroups {
    /// Available groups, in the order of the list.
    pub groups: Vec<&'static dyn SupportedKxGroup>,
    /// Names of groups that OpenSSL knows and rustls lacks.
    pub missing: Vec<String>,
}

/// Groups of `auto`: rustls's preference, the ML-KEM hybrid first.
pub fn automatic_groups() -> Vec<&'static dyn SupportedKxGroup> {
    let mut all = provider().kx_groups.clone();
    all.sort_by_key(|g| g.name() != NamedGroup::X25519MLKEM768);
    all
}

/// Parses a list such as `X25519:prime256v1`. Fails with the name that OpenSSL does not know either.
pub fn select_groups(text: &str) -> Result<SelectedGroups, String> {
    if text == "auto" {
        return Ok(SelectedGroups { groups: automatic_groups(), missing: Vec::new() });
    }
    let mut selected = SelectedGroups::default();
    for word in text.split(':') {
        // OpenSSL 3.5: "?name" may be missing.
        let (optional, word) = word.strip_prefix('?').map_or((false, word), |w| (true, w));
        let Some((_, id, _)) = GROUPS.iter().find(|(names, _, _)| names.contains(&word)) else {
            if optional {
                continue;
            }
            return Err(word.to_string());
        };
        match provider().kx_groups.iter().copied().find(|g| u16::from(g.name()) == *id) {
            Some(group) if selected.groups.iter().any(|g| g.name() == group.name()) => {}
            Some(group) => selected.groups.push(group),
            None if optional => {}
            None => selected.missing.push(word.to_string()),
        }
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let names = |text: &str| -> Vec<String> {
            select_groups(text).expect("known").groups.iter().map(|g| group_name(u16::from(g.name()))).collect()
        };
        assert_eq!(names("auto")[..2], ["X25519MLKEM768", "X25519"]);
        assert_eq!(names("prime256v1:X25519:P-256"), ["prime256v1", "X25519"]);
        let selected = select_groups("secp521r1:secp384r1").expect("known");
        assert_eq!((selected.groups.len(), &selected.missing[..]), (1, &["secp521r1".to_string()][..]));
        assert_eq!(select_groups("X25519:nonsense").err().as_deref(), Some("nonsense"));
        assert_eq!(names("?nonsense:X25519"), ["X25519"]);
        assert_eq!(group_name(0xfefe), "0xfefe");
    }
}
