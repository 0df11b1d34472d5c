//! The folder of certificates: `NAME.crt` and `NAME.key`, found by the names of hosts as nginx-proxy finds them.

use std::collections::BTreeMap;

use cluster_model::{Certificate, HostName};

/// Name of the certificate of hosts without one of their own.
const DEFAULT_NAME: &str = "default";

/// File of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderFile {
    /// Name without the folder.
    pub name: String,
    pub contents: Vec<u8>,
}

/// Certificates by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CertificateFolder {
    certificates: BTreeMap<String, Certificate>,
    /// Files that are no certificates, with the reason.
    pub problems: Vec<(String, String)>,
}

impl CertificateFolder {
    /// Pairs and checks files. Others than `.crt` and `.key` are passed over.
    pub fn new(files: &[FolderFile]) -> CertificateFolder {
        let mut folder = CertificateFolder::default();
        let contents: BTreeMap<&str, &[u8]> =
            files.iter().map(|file| (file.name.as_str(), file.contents.as_slice())).collect();
        for (file, chain) in &contents {
            let Some(name) = file.strip_suffix(".crt").filter(|name| !name.ends_with(".ca") && *name != "ca") else {
                continue;
            };
            let Some(key) = contents.get(format!("{name}.key").as_str()) else {
                folder.problems.push(((*file).to_owned(), format!("there is no {name}.key")));
                continue;
            };
            match Certificate::from_pem(chain, key) {
                Ok(certificate) => {
                    folder.certificates.insert(name.to_owned(), certificate);
                }
                Err(reason) => folder.problems.push(((*file).to_owned(), reason)),
            }
        }
        folder
    }

    /// Returns the certificate of a host: the one that it names, of its name, of its parent's name, or the default one.
    ///
    /// # Errors
    /// If the named one does not exist: no other one is used.
    pub fn select<'a>(
        &'a self,
        host: &HostName,
        named: Option<&'a str>,
    ) -> Result<Option<(&'a str, &'a Certificate)>, String> {
        let get = |name: &str| self.certificates.get_key_value(name).map(|(name, found)| (name.as_str(), found));
        if let Some(named) = named {
            return get(named).map(Some).ok_or_else(|| {
                format!("there is no certificate \"{}\" in the folder of certificates", named.escape_debug())
            });
        }
        let text = match host {
            HostName::Exact(name) => name.clone(),
            // "*.example.com" and "example.com" are names of the certificate of "*.example.com".
            HostName::Wildcard(name) => format!("*.{name}"),
            HostName::Prefix(_) | HostName::Pattern(_) | HostName::Any => String::new(),
        };
        let parent = text.split_once('.').map(|(_, parent)| parent).filter(|parent| parent.contains('.'));
        Ok(get(&text).or_else(|| get(parent?)).or_else(|| get(DEFAULT_NAME)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, contents: &str) -> FolderFile {
        FolderFile { name: name.into(), contents: contents.into() }
    }

    #[test]
    fn certificates_are_found_as_nginx_proxy_finds_them() {
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let mut files = Vec::new();
        for name in ["a.example.test", "example.test", "shared", "default"] {
            files.push(file(&format!("{name}.crt"), &chain));
            files.push(file(&format!("{name}.key"), &key));
        }
        files.extend([file("lonely.crt", &chain), file("broken.crt", "x"), file("broken.key", "x"), file("x.txt", "")]);
        let folder = CertificateFolder::new(&files);
        let of = |host: &str, named: Option<&str>| {
            let host = HostName::parse_server_name(host).unwrap();
            folder.select(&host, named).map(|found| found.map(|(name, _)| name.to_owned()))
        };
        let some = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(of("a.example.test", None), some("a.example.test"));
        assert_eq!(of("b.example.test", None), some("example.test"));
        assert_eq!(of("*.example.test", None), some("example.test"));
        assert_eq!(of("x.b.example.test", None), some("default"), "the parent's parent is no parent");
        assert_eq!(of("other.test", Some("shared")), some("shared"));
        assert!(of("a.example.test", Some("gone")).is_err());
        assert_eq!(folder.problems.len(), 2, "{:?}", folder.problems);
    }
}
